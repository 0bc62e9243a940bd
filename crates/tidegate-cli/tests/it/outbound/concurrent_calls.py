"""Makes concurrent calls with an official client, without its retries.

    concurrent_calls.py CLIENT CALLERS MAX_TOKENS TIMEOUT

The client is configured only by environment variables. Prints one line, a JSON list with the status,
the error and the time of each call.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

MODEL = "tidal-1"
MESSAGES = [{"role": "user", "content": "How is the tide?"}]


def openai(max_tokens, timeout):
    import openai

    client = openai.OpenAI(max_retries=0, timeout=timeout)
    call = client.chat.completions.create
    return lambda: call(model=MODEL, messages=MESSAGES, max_tokens=max_tokens)


def anthropic(max_tokens, timeout):
    import anthropic

    client = anthropic.Anthropic(max_retries=0, timeout=timeout)
    call = client.messages.create
    return lambda: call(model=MODEL, messages=MESSAGES, max_tokens=max_tokens)


CLIENTS = {"openai": openai, "anthropic": anthropic}


def main(name, callers, max_tokens, timeout):
    call = CLIENTS[name](int(max_tokens), float(timeout))
    barrier = Barrier(int(callers))

    def one(_):
        barrier.wait()
        begun = time.monotonic()
        status, error = 200, None
        try:
            call()
        except Exception as raised:
            # Only a response of the gateway has a status; a timeout has none.
            status = getattr(raised, "status_code", None)
            error = f"{type(raised).__name__}: {raised}"
        return {"status": status, "error": error, "seconds": time.monotonic() - begun}

    with ThreadPoolExecutor(int(callers)) as pool:
        print(json.dumps(list(pool.map(one, range(int(callers))))))


if __name__ == "__main__":
    main(*sys.argv[1:])
