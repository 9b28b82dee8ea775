// DOT on stdin; on stdout JSON with the picture as SVG, and as operations that say how wide each text was taken to be.
// Graphviz compiled to WebAssembly: no system package, the same layout on every machine.
// The argument is the folder node_modules that has Graphviz; an import would look above this file only.
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

const { instance } = createRequire(`${process.argv[2]}/`)("@viz-js/viz");
const viz = await instance();
const { status, output, errors } = viz.renderFormats(await text(process.stdin), ["svg", "json"]);
if (status !== "success") throw new Error(errors.map(({ message }) => message).join("; "));
process.stdout.write(JSON.stringify(output));
