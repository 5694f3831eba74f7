"""A tool loop over Messages, run by the SDK itself: the model hands a sum to a calculator and tells the result."""

import operator
import os
import random
import sys

from anthropic import Anthropic, beta_tool

# Without it the SDK makes a schema in which everything has a title, too; the tiny model takes that for a parameter.
SCHEMA = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}


@beta_tool(input_schema=SCHEMA)
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression"""
    left, sign, right = expression.split()
    result = {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](int(left), int(right))
    print(f"calculator({expression}) -> {result}")
    return f'{{"result": {result}}}'


client = Anthropic(base_url=os.environ.get("ANTHROPIC_BASE_URL", "http://127.0.0.1:8400"), api_key="none")
question = " ".join(sys.argv[1:]) or f"What is {random.randint(10, 99)} * {random.randint(2, 9)}?"
runner = client.beta.messages.tool_runner(
    model="tiny",
    max_tokens=300,
    max_iterations=5,
    messages=[{"role": "user", "content": question}],
    tools=[calculator],
)
for message in runner:
    print(*(block.text for block in message.content if block.type == "text"))
