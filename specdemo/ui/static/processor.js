// Whether models run on the processor that draws the page: then it draws seldom, and nothing moves between two drawings.

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;
let running = false;

/** Say whether models run now. */
export function setModelsRun(value) {
  running = value;
}

/** Whether they do, and the page comes from this very machine. */
export function sharesProcessor() {
  return running && LOOPBACK.test(location.hostname);
}
