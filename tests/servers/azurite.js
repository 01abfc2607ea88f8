// Azurite's blob service on a free port, all in memory: prints its address, and ends when its standard input does.
//   node azurite.js FOLDER [option…]      FOLDER holds node_modules
"use strict";
const path = require("path");

const [folder, ...options] = process.argv.splice(2);
const print = console.log;
console.log = (line) => {
  const found = /listens on (\S+)/.exec(line);
  if (found) print(found[1]);
};
process.stdin.on("end", () => process.exit(0)).resume();
process.argv.push("--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry", "--silent");
process.argv.push(...options);
require(path.join(folder, "node_modules", "azurite", "dist", "src", "blob", "main.js"));
