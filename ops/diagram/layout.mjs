// DOT on stdin, SVG on stdout. Graphviz compiled to WebAssembly: no system package, the same layout on every machine.
import { text } from "node:stream/consumers";
import { instance } from "@viz-js/viz";

const viz = await instance();
process.stdout.write(viz.renderString(await text(process.stdin), { format: "svg" }));
