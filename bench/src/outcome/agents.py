"""Agents that call a model through one base URL, with the official OpenAI client as it comes.

Reads a plan as JSON from standard input and prints what happened as JSON. A call whose retries are
used up is started again after a second, as a job does that must be done, until the time is over.
"""

import asyncio
import json
import random
import sys
import time

import openai

RESTART = 1.0


class Run:
    def __init__(self, plan):
        self.plan = plan
        self.throttled = 0
        self.failed = 0
        self.answers = []  # tenant, and when its call was answered
        self.quiet = []  # seconds from the start of a call to its answer
        self.http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [self.count]})
        self.start = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.start

    async def count(self, response):
        self.throttled += response.status_code == 429

    def client(self, tenant):
        headers = {**self.plan["headers"], "x-tidegate-tenant": tenant}
        return openai.AsyncOpenAI(
            base_url=self.plan["base_url"],
            api_key=self.plan["key"],
            default_headers=headers,
            http_client=self.http,
        )

    async def call(self, client, words):
        message = {"role": "user", "content": "word " * words}
        while self.elapsed() < self.plan["longest"]:
            try:
                await client.chat.completions.create(
                    model=self.plan["model"],
                    messages=[message],
                    max_tokens=self.plan["max_tokens"],
                )
                return True
            except openai.OpenAIError:
                self.failed += 1
                await asyncio.sleep(RESTART)
        return False

    async def busy(self, tenant, number, calls):
        dice = random.Random(f"{self.plan['seed']} {tenant} {number}")
        client = self.client(tenant)
        await asyncio.sleep(dice.random())
        while calls:
            calls.pop()
            if await self.call(client, dice.randint(20, 200)):
                self.answers.append((tenant, self.elapsed()))

    async def quiet_calls(self, tenant):
        client = self.client(tenant)
        while True:
            await asyncio.sleep(self.plan["quiet_every"])
            start = self.elapsed()
            if await self.call(client, 50):
                self.quiet.append(self.elapsed() - start)

    async def all(self):
        quiet = asyncio.create_task(self.quiet_calls("quiet"))
        agents = []
        for tenant in self.plan["tenants"]:
            calls = list(range(tenant["calls"]))
            name = tenant["name"]
            agents += [self.busy(name, number, calls) for number in range(tenant["agents"])]
        if agents:
            await asyncio.gather(*agents)
        else:
            await asyncio.sleep(self.plan["alone"])
        seconds = self.elapsed()
        quiet.cancel()
        return {
            "seconds": seconds,
            "throttled": self.throttled,
            "failed": self.failed,
            "answers": self.answers,
            "quiet": self.quiet,
        }


async def main():
    print(json.dumps(await Run(json.load(sys.stdin)).all()))


asyncio.run(main())
