"""Validates a software bill of materials against the official schema of CycloneDX 1.5. Prints one
line with the number of problems."""

import json
import pathlib
import sys

import cyclonedx.schema
from jsonschema import Draft7Validator
from referencing import Registry, Resource

schemas = pathlib.Path(cyclonedx.schema.__file__).parent / "_res"


def schema(name):
    return json.loads((schemas / name).read_text())


registry = Registry()
for name in ("spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json"):
    resource = Resource.from_contents(schema(name))
    registry = registry.with_resource(resource.id(), resource)

main = schema("bom-1.5.SNAPSHOT.schema.json")
with open(sys.argv[1]) as file:
    bill = json.load(file)
problems = [
    f"{list(error.path)}: {error.message}"
    for error in Draft7Validator(main, registry=registry).iter_errors(bill)
]

# What the schema cannot express.
references = [bill["metadata"]["component"]["bom-ref"]]
references += [component["bom-ref"] for component in bill["components"]]
if len(set(references)) != len(references):
    problems.append("a bom-ref is not unique")
described = [entry["ref"] for entry in bill["dependencies"]]
if sorted(described) != sorted(references):
    problems.append("the dependencies do not cover the components")
for entry in bill["dependencies"]:
    for on in entry["dependsOn"]:
        if on not in references:
            problems.append(f"{entry['ref']} depends on {on}, which is not listed")

for problem in problems:
    print(problem, file=sys.stderr)
print(len(problems))
