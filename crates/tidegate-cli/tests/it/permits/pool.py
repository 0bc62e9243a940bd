"""A pool of worker processes that uses /v1/acquire as a semaphore.

    pool.py URLS WORKERS ROUNDS

Each worker acquires a slot, works briefly and releases it, ROUNDS times. One more worker hangs and is
killed (SIGKILL) while it holds its slot. URLS are separated by commas and used in turn. Prints one
line of JSON: the maximum number of workers that held a slot at the same time, the maximum after the
permit of the killed worker expired, and the number of finished rounds.
"""

import json
import os
import signal
import sys
import tempfile
import time
from multiprocessing import get_context
from urllib.request import Request, urlopen

WORK = 0.01
VICTIM_TTL_MS = 1_000


def post(url, path, body):
    request = Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def acquire(url, ttl_ms):
    body = {"limit": "pool", "key": "workers", "max_wait_ms": 60_000, "ttl_ms": ttl_ms}
    return post(url, "/v1/acquire", body)["id"]


def note(journal, what):
    """Appends one line atomically. All processes share the clock."""
    line = f"{time.monotonic_ns()} {what} {os.getpid()}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def worker(url, rounds, journal):
    for _ in range(rounds):
        permit = acquire(url, 60_000)
        note(journal, "enter")
        time.sleep(WORK)
        note(journal, "leave")
        post(url, "/v1/release", {"id": permit})


def victim(url, journal, inside):
    acquire(url, VICTIM_TTL_MS)
    note(journal, "enter")
    inside.set()
    signal.pause()


def most_inside(events, since=0):
    inside, most = set(), 0
    for at, what, pid in events:
        if what == "enter":
            inside.add(pid)
        else:
            inside.discard(pid)
        if at >= since:
            most = max(most, len(inside))
    return most


def main(urls, workers, rounds):
    context = get_context("fork")
    with tempfile.NamedTemporaryFile() as file:
        journal = file.name
        inside = context.Event()
        doomed = context.Process(target=victim, args=(urls[0], journal, inside))
        doomed.start()
        inside.wait()
        pool = [
            context.Process(target=worker, args=(urls[n % len(urls)], rounds, journal))
            for n in range(workers)
        ]
        for process in pool:
            process.start()
        # The other workers are running or waiting for the slot of the killed worker.
        os.kill(doomed.pid, signal.SIGKILL)
        doomed.join()
        killed = time.monotonic_ns()
        for process in pool:
            process.join()
        with open(journal) as lines:
            events = sorted((int(at), what, int(pid)) for at, what, pid in map(str.split, lines))
    events = [event for event in events if event[2] != doomed.pid]
    entered = sum(what == "enter" for _, what, _ in events)
    # Until it was killed, the victim held one of the slots.
    first = (killed, "leave", doomed.pid)
    with_doomed = sorted([(0, "enter", doomed.pid), first, *events])
    print(
        json.dumps(
            {
                "failed": [process.exitcode for process in pool if process.exitcode != 0],
                "most": most_inside(with_doomed),
                "most_after": most_inside(events, killed + VICTIM_TTL_MS * 1_000_000),
                "rounds": entered,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]))
