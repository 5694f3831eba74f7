// Owns letting the official JavaScript SDKs judge answers: one question a line on stdin, one verdict a line on stdout.
//
// A question is {sdk, method, baseURL, maxRetries, params}; `tests/answers/javascript.py` asks. A verdict has
//   result    what the SDK returns, null if it raised: a whole answer, or what its stream helper accumulated
//   error     what it raised, null if nothing: {name, classes, message, status, code, type}
//   events    the events or chunks of a stream, as the SDK gave them on, up to the error if there is one
//   snapshot  what the helper of a stream had accumulated when it ended or raised, where it shows that

import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const SDKS = { openai: OpenAI, anthropic: Anthropic };
const LIMIT = 20_000; // milliseconds for one question: no SDK may wait for ever

const clients = new Map();

function clientOf(sdk, baseURL) {
    const key = `${sdk} ${baseURL}`;
    if (!clients.has(key)) {
        clients.set(key, new SDKS[sdk]({ apiKey: "-", baseURL, logLevel: "off" }));
    }
    return clients.get(key);
}

// How an API is asked: whole, with the helper that accumulates a stream, and for the bare events of a stream.

const ENDPOINTS = {
    chat: (client) => client.chat.completions,
    responses: (client) => client.responses,
    messages: (client) => client.messages,
    completions: (client) => client.completions,
};

const HELPERS = {
    chat(helper, verdict) {
        helper.on("chunk", (_, snapshot) => (verdict.snapshot = snapshot));
        return () => helper.finalChatCompletion();
    },
    responses(helper) {
        return () => helper.finalResponse();
    },
    messages(helper, verdict) {
        helper.on("streamEvent", (_, snapshot) => (verdict.snapshot = snapshot));
        return () => helper.finalMessage();
    },
};

async function answer(question, verdict, signal) {
    const [api, way = "whole"] = question.method.split(".");
    const endpoint = ENDPOINTS[api](clientOf(question.sdk, question.baseURL));
    const options = { signal, maxRetries: question.maxRetries };
    if (way === "whole") {
        verdict.result = await endpoint.create(question.params, options);
    } else if (way === "events") {
        for await (const event of await endpoint.create({ ...question.params, stream: true }, options)) {
            verdict.events.push(copied(event));
        }
    } else {
        const helper = endpoint.stream(question.params, options);
        const final = HELPERS[api](helper, verdict);
        for await (const event of helper) {
            verdict.events.push(copied(event));
        }
        verdict.result = await final();
    }
}

function told(error) {
    const classes = [];
    for (let kind = Object.getPrototypeOf(error); kind !== null; kind = Object.getPrototypeOf(kind)) {
        classes.push(kind.constructor.name);
    }
    const { message, status = null, code = null, type = null } = error;
    return { name: classes[0], classes, message: String(message), status, code, type };
}

async function verdictOf(question) {
    const verdict = { result: null, error: null, events: [], snapshot: null };
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), LIMIT);
    try {
        await answer(question, verdict, stop.signal);
        return JSON.stringify(verdict); // reading what was accumulated may raise, too
    } catch (error) {
        return JSON.stringify({ ...verdict, result: null, snapshot: copied(verdict.snapshot), error: told(error) });
    } finally {
        clearTimeout(timer);
    }
}

// A helper goes on writing in the events that it gave on, and what it reads of broken JSON raises when it is looked at.
function copied(value) {
    try {
        return JSON.parse(JSON.stringify(value));
    } catch {
        return null;
    }
}

for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${await verdictOf(JSON.parse(line))}\n`);
}
