// In this repository, the package is linked instead of installed.
import { execFileSync } from "node:child_process";
import { lstatSync, rmSync, symlinkSync } from "node:fs";
import { fileURLToPath } from "node:url";

const client = fileURLToPath(new URL("../../../clients/typescript", import.meta.url));
const link = fileURLToPath(new URL("../node_modules/tidegate", import.meta.url));
const found = lstatSync(link, { throwIfNoEntry: false });
if (found === undefined || found.isSymbolicLink()) {
  execFileSync(process.execPath, ["scripts/build.mjs"], { cwd: client, stdio: "inherit" });
  rmSync(link, { force: true });
  symlinkSync(client, link, "dir");
}
