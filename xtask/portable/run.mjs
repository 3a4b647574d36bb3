// Runs the corpus that was built for wasm32 and prints its report: node run.mjs MODULE The module imports nothing; `report_full` returns the address
// and the length of its text in one number.
import { readFileSync } from "node:fs";

const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), {});
const place = BigInt.asUintN(64, instance.exports.report_full());
const address = Number(place >> 32n);
const length = Number(place & 0xffffffffn);
process.stdout.write(new TextDecoder().decode(new Uint8Array(instance.exports.memory.buffer, address, length)));
