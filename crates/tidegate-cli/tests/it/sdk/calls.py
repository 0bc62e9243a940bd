"""Makes calls with an official client that is configured only by environment variables.

    calls.py CLIENT talk BURST    a call, a streamed call, and BURST concurrent calls
    calls.py CLIENT refused       a call that succeeds, and two that are rejected

Retries of the clients are disabled, so that the responses of the gateway are visible. Prints one
line, a JSON object. Unexpected errors end the script with a traceback.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

MODEL = "tidal-1"
PROMPT = "How is the tide?"
MESSAGES = [{"role": "user", "content": PROMPT}]


def answer(text, read, written):
    """Returns the text and the token counts of a response."""
    return {"text": text, "input_tokens": read, "output_tokens": written}


class OpenAI:
    def __init__(self):
        import openai

        self.client = openai.OpenAI(max_retries=0)
        self.refusal = openai.RateLimitError

    def whole(self):
        reply = self.client.chat.completions.create(model=MODEL, messages=MESSAGES)
        usage = reply.usage
        text = reply.choices[0].message.content
        return answer(text, usage.prompt_tokens, usage.completion_tokens)

    def streamed(self):
        chunks = self.client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, usage = "", None
        for chunk in chunks:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        return answer(text, usage.prompt_tokens, usage.completion_tokens)

    def told(self, error):
        return error.status_code, error.response.headers


class Anthropic:
    def __init__(self):
        import anthropic

        self.client = anthropic.Anthropic(max_retries=0)
        self.refusal = anthropic.RateLimitError

    def whole(self):
        reply = self.client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=100)
        text = "".join(block.text for block in reply.content)
        return answer(text, reply.usage.input_tokens, reply.usage.output_tokens)

    def streamed(self):
        asked = self.client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=100)
        with asked as events:
            text = "".join(events.text_stream)
            usage = events.get_final_message().usage
        return answer(text, usage.input_tokens, usage.output_tokens)

    def told(self, error):
        return error.status_code, error.response.headers


class Gemini:
    def __init__(self):
        from google import genai
        from google.genai import errors

        self.client = genai.Client()
        self.refusal = errors.ClientError

    def whole(self):
        reply = self.client.models.generate_content(model=MODEL, contents=PROMPT)
        usage = reply.usage_metadata
        return answer(reply.text, usage.prompt_token_count, usage.candidates_token_count)

    def streamed(self):
        text, usage = "", None
        for chunk in self.client.models.generate_content_stream(model=MODEL, contents=PROMPT):
            text += chunk.text or ""
            usage = chunk.usage_metadata or usage
        return answer(text, usage.prompt_token_count, usage.candidates_token_count)

    def told(self, error):
        return error.code, error.response.headers


class Ollama:
    def __init__(self):
        import ollama

        self.client = ollama.Client()
        self.refusal = ollama.ResponseError

    def whole(self):
        reply = self.client.chat(model=MODEL, messages=MESSAGES)
        return answer(reply.message.content, reply.prompt_eval_count, reply.eval_count)

    def streamed(self):
        text, last = "", None
        for last in self.client.chat(model=MODEL, messages=MESSAGES, stream=True):
            text += last.message.content or ""
        return answer(text, last.prompt_eval_count, last.eval_count)

    def told(self, error):
        # The exception of this client has no response headers.
        return error.status_code, None


CLIENTS = {"openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini, "ollama": Ollama}


def talk(client, size):
    """Makes one call of each kind, then a burst. Errors in the burst are returned, not raised."""

    def one(_):
        try:
            return client.whole()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    whole, streamed = client.whole(), client.streamed()
    with ThreadPoolExecutor(size) as pool:
        burst = list(pool.map(one, range(size)))
    return {"whole": whole, "streamed": streamed, "burst": burst}


def refused(client):
    """Exhausts the limit with the first call."""
    client.whole()
    return {"whole": refusal(client, client.whole), "streamed": refusal(client, client.streamed)}


def refusal(client, call):
    """Makes a call and describes the rate limit exception that it must raise."""
    begun = time.monotonic()
    try:
        call()
    except client.refusal as error:
        status, headers = client.told(error)
        wanted = ("retry-after", "retry-after-ms")
        return {
            "error": type(error).__name__,
            "status": status,
            "headers": headers and {name: headers.get(name) for name in wanted},
            "seconds": time.monotonic() - begun,
        }
    raise SystemExit("the call was answered")


def main(name, story, *numbers):
    client = CLIENTS[name]()
    stories = {"talk": talk, "refused": refused}
    print(json.dumps(stories[story](client, *map(int, numbers))))


if __name__ == "__main__":
    main(*sys.argv[1:])
