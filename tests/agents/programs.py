"""Owns the programs that use a library: what follows the lines that a recipe gives, which set `model`.

Each has a tool that reads the word from a file, and takes `stream` or `whole` as its argument.
"""

_OPENAI_AGENTS = '''
import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner, function_tool


@function_tool
def look_up(name: str) -> str:
    """Look a word up."""
    return Path("word.txt").read_text()


async def main():
    agent = Agent(name="finder", model=model, tools=[look_up])
    if sys.argv[1] == "whole":
        return print((await Runner.run(agent, "What is the word?")).final_output)
    result = Runner.run_streamed(agent, "What is the word?")
    said = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            said += event.data.delta
    assert said == result.final_output, (said, result.final_output)
    print(said)


asyncio.run(main())
'''

_PYDANTIC_AI = '''
import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent

agent = Agent(model)


@agent.tool_plain
def look_up(name: str) -> str:
    """Look a word up."""
    return Path("word.txt").read_text()


async def main():
    if sys.argv[1] == "whole":
        return print((await agent.run("What is the word?")).output)
    async with agent.run_stream("What is the word?") as result:
        print("".join([piece async for piece in result.stream_text(delta=True)]))


asyncio.run(main())
'''

_AI_SDK = """
import { readFileSync } from "node:fs";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const look_up = tool({
  description: "Look a word up.",
  inputSchema: z.object({ name: z.string() }),
  execute: async () => readFileSync("word.txt", "utf8"),
});
const asked = { model, tools: { look_up }, stopWhen: stepCountIs(5), prompt: "What is the word?", maxRetries: 0 };
if (process.argv[2] === "whole") {
  console.log((await generateText(asked)).text);
} else {
  let said = "";
  for await (const part of streamText({ ...asked, onError: ({ error }) => { throw error; } }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") said += part.text;
  }
  console.log(said);
}
"""

OWN_TOOLS = """
import asyncio
import subprocess
import sys
from pathlib import Path

from agents import Agent, ApplyPatchTool, LocalShellTool, Runner, ShellTool, apply_diff
from agents.editor import ApplyPatchResult


def local_shell(request):
    action = request.data.action
    return subprocess.run(action.command, env=action.env, capture_output=True, text=True).stdout


def shell(request):
    action = request.data.action
    return "".join([subprocess.run(one, shell=True, capture_output=True, text=True).stdout for one in action.commands])


class Editor:
    def create_file(self, operation):
        Path(operation.path).write_text(apply_diff("", operation.diff, mode="create"))
        return ApplyPatchResult(status="completed", output="Created.")

    def update_file(self, operation):
        file = Path(operation.path)
        file.write_text(apply_diff(file.read_text(), operation.diff))
        return ApplyPatchResult(status="completed", output="Updated.")

    def delete_file(self, operation):
        Path(operation.path).unlink()
        return ApplyPatchResult(status="completed")


TOOLS = {"shell": ShellTool(executor=shell), "local_shell": LocalShellTool(executor=local_shell)}


async def main():
    agent = Agent(name="finder", model=model, tools=[ApplyPatchTool(editor=Editor()), TOOLS[sys.argv[2]]])
    if sys.argv[1] == "whole":
        return print((await Runner.run(agent, "What is the word?")).final_output)
    result = Runner.run_streamed(agent, "What is the word?")
    async for event in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(main())
"""
"""With OpenAI's own tools that the client runs, in its Agents SDK; one more argument: which of the shells."""

PROGRAMS = {"openai-agents": _OPENAI_AGENTS, "pydantic-ai": _PYDANTIC_AI, "ai-sdk": _AI_SDK}
"""By the client's name."""
