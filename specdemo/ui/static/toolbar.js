// The tools of the stage: open a recording or a trace file, save and share the run, and the projector switch.

import { element, recall, remember } from "./dom.js";
import { fetchRecording, listRecordings, openTrace } from "./recordings.js";
import { fileStem, linkTo, offlinePage, pictureOf, saveFile } from "./share.js";
import { named } from "./tokens.js";
import { settingWords } from "./words.js";

const PROJECTOR_KEY = "specdemo-projector";
const SAVERS = ["save-trace", "save-page", "copy-image", "copy-link"];

export class Toolbar {
  constructor(stage, base) {
    this.stage = stage;
    this.base = base;
    this.roles = stage.roles;
    this.wireRecordings();
    for (const role of SAVERS) this.roles[role].addEventListener("click", () => this.share(role));
    this.wireProjector();
    this.enable(false);
  }

  enable(runs) {
    for (const role of SAVERS) this.roles[role].disabled = !runs;
  }

  /** Fill the menu of recordings and play the `wanted` one; returns the names of all. */
  async offerRecordings(wanted) {
    if (wanted) await this.playRecording(wanted);
    const recordings = await listRecordings(this.base).catch(() => []);
    const last = this.roles.recordings.lastElementChild;
    for (const { name, title, device } of recordings) {
      const option = element("option", "", `${title} (${device})`);
      option.value = name;
      last.before(option);
    }
    const names = recordings.map(({ name }) => name);
    if (names.includes(wanted)) this.roles.recordings.value = wanted;
    return names;
  }

  /** Play a shipped recording in place of the current run; returns whether it is shown. */
  playRecording(name) {
    return this.playInstead(() => fetchRecording(this.base, name), name);
  }

  playInstead(fetchText, recording) {
    document.querySelector("#stop:enabled")?.click(); // nobody would see the rest of that run
    return this.play(fetchText, recording);
  }

  /** Play a finished run once it has arrived, unless another has begun or been chosen in the meantime. */
  async play(fetchText, recording) {
    const { stage } = this;
    const { trace } = stage;
    const asked = (this.asked = {});
    const isOvertaken = () => this.asked !== asked || stage.trace !== trace;
    try {
      const text = await fetchText();
      if (isOvertaken()) return false;
      stage.load(text, recording);
    } catch (error) {
      if (isOvertaken()) return false;
      stage.begin();
      stage.fail(error.message);
    }
    return stage.recording === recording;
  }

  wireRecordings() {
    const { recordings, "trace-file": file } = this.roles;
    recordings.addEventListener("change", () => {
      if (recordings.value === "file") {
        recordings.value = "";
        file.click();
      } else if (recordings.value) {
        this.playRecording(recordings.value);
      }
    });
    file.addEventListener("change", () => {
      const [chosen] = file.files;
      if (chosen) this.playInstead(() => openTrace(this.base, chosen), null);
      file.value = "";
    });
  }

  async share(role) {
    this.roles["save-menu"].open = false;
    const { trace, recording } = this.stage;
    const { run } = trace.start;
    try {
      if (role === "save-trace") saveFile(`${fileStem(run)}.json`, "application/json", JSON.stringify(trace.file()));
      else if (role === "save-page") await this.savePage(trace);
      else if (role === "copy-link") await navigator.clipboard.writeText(linkTo(location.href, run, recording));
      const done = { "save-trace": "Trace saved.", "save-page": "Page saved; it replays offline.", "copy-link": "Link copied." };
      this.tell(done[role] ?? (await this.copyImage(run)));
    } catch (error) {
      this.tell(`Not done: ${error.message}. Try again.`);
    }
  }

  async savePage(trace) {
    const response = await fetch(new URL("player.html", this.base));
    if (!response.ok) throw new Error(`the server returned status ${response.status}`);
    saveFile(`${fileStem(trace.start.run)}.html`, "text/html", offlinePage(await response.text(), trace.events));
  }

  /** Copy a picture of the run, or save it if the browser refuses; returns what was done. */
  async copyImage(run) {
    const picture = await pictureOf(this.stage.root, `${named(settingWords(run))} ${run.started_at.slice(0, 10)}.`);
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
      return "Image copied.";
    } catch {
      saveFile(`${fileStem(run)}.png`, "image/png", picture);
      return "Image saved as a file; this browser cannot copy images.";
    }
  }

  tell(words) {
    this.stage.speaker.sayNow(words);
    this.roles.told.textContent = words;
  }

  // Larger and without the settings, for a classroom; the rest of the page follows a class of the body.
  wireProjector() {
    const { projector } = this.roles;
    projector.checked = recall(PROJECTOR_KEY) === "on";
    const apply = () => document.body.classList.toggle("sd-projector", projector.checked);
    projector.addEventListener("change", () => {
      apply();
      this.stage.reflow();
      remember(PROJECTOR_KEY, projector.checked ? "on" : "off");
    });
    apply();
  }
}
