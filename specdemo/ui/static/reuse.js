// From a run that was recorded to one's own: a link that puts its prompt and settings into the widgets.

import { element } from "./dom.js";
import { linkTo } from "./share.js";

const WORDS = "Use its prompt and settings";

export class Reuse {
  constructor(roles) {
    this.links = ["hint", "closing"].map((role) => [roles[role], element("a", "sd-reuse", WORDS)]);
  }

  /** A finished run is shown that was made elsewhere or earlier. */
  offer(run) {
    for (const [place, link] of this.links) {
      link.href = linkTo(location.href, run, null);
      place.append(" ", link);
    }
  }

  /** Another run is shown. */
  leave() {
    for (const [, link] of this.links) link.remove();
  }
}
