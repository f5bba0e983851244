// A thread of the passes, started by worker.js.

import { instanceOf, serve } from "./passes.js";

onmessage = async ({ data: { module, memory, plan, me } }) => {
  serve(await instanceOf(module, memory, plan, me), memory, plan, me, () => postMessage("ready"));
};
