"""Checks the container files: the Dockerfile with hadolint, the compose file against the schema of
its format, and the paths that both name. Prints one line with the number of problems."""

import os
import subprocess
import sys

from ruamel.yaml import YAML

root = sys.argv[1]
folder = os.path.join(root, "deploy/container")
compose = os.path.join(folder, "compose.yaml")
problems = []


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        problems.append(f"{command[0]}: {done.stdout}{done.stderr}")


run(os.path.join(sys.prefix, "bin/hadolint"), os.path.join(folder, "Dockerfile"))
run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", compose)

with open(compose) as file:
    services = YAML(typ="safe").load(file)["services"]
for name, service in services.items():
    sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
    named = [source for source in sources if source.startswith(".")]
    if "build" in service:
        context = os.path.join(folder, service["build"]["context"])
        named += [os.path.join(context, service["build"]["dockerfile"])]
    for path in named:
        if not os.path.exists(os.path.join(folder, path)):
            problems.append(f"{name}: {path} does not exist")

for problem in problems:
    print(problem, file=sys.stderr)
print(len(problems))
