// What can be done with a run besides watching it: open a recorded one, save it, share it; and the projector switch.

import { element, recall, remember } from "./dom.js";
import { runWords } from "./notice.js";
import { fetchRecording, listRecordings, openTrace } from "./recordings.js";
import { fileStem, linkTo, offlinePage, pictureOf, saveFile } from "./share.js";

const PROJECTOR_KEY = "specdemo-projector";
const SAVERS = ["save-trace", "save-page", "copy-image", "copy-link"];

export class Toolbar {
  constructor(stage, base) {
    this.stage = stage;
    this.base = base;
    this.roles = stage.roles;
    this.wireRecordings();
    this.wireSaving();
    this.wireProjector();
    this.enable(false);
  }

  enable(runs) {
    for (const role of SAVERS) this.roles[role].disabled = !runs;
  }

  /** Fill the menu of shipped recordings, and play the one named in the address; gives the names of all. */
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

  /** Play a shipped recording in place of whatever runs; whether it is the one shown. */
  playRecording(name) {
    return this.playInstead(() => fetchRecording(this.base, name), name);
  }

  playInstead(fetchText, recording) {
    document.querySelector("#stop:enabled")?.click(); // nobody would see the rest of that run
    return this.play(fetchText, recording);
  }

  /** Play a finished run as soon as it has come, unless another has begun or been asked for meanwhile. */
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

  wireSaving() {
    const on = (role, act) =>
      this.roles[role].addEventListener("click", async () => {
        this.roles["save-menu"].open = false;
        try {
          this.tell(await act(this.stage.trace));
        } catch (error) {
          this.tell(`That did not work: ${error.message}.`);
        }
      });
    on("save-trace", (trace) => this.saveTrace(trace));
    on("save-page", (trace) => this.savePage(trace));
    on("copy-image", () => this.copyImage());
    on("copy-link", (trace) => this.copyLink(trace));
  }

  saveTrace(trace) {
    saveFile(`${fileStem(trace.start.run)}.json`, "application/json", JSON.stringify(trace.file()));
    return "Trace saved.";
  }

  async savePage(trace) {
    const response = await fetch(new URL("player.html", this.base));
    if (!response.ok) throw new Error(`the server gave status ${response.status}`);
    saveFile(`${fileStem(trace.start.run)}.html`, "text/html", offlinePage(await response.text(), trace.events));
    return "Page saved; it replays with no internet.";
  }

  async copyImage() {
    const { run } = this.stage.trace.start;
    const picture = await pictureOf(this.stage.root, `${runWords(run)} ${run.started_at.slice(0, 10)}.`);
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
      return "Image copied.";
    } catch {
      saveFile(`${fileStem(this.stage.trace.start.run)}.png`, "image/png", picture);
      return "This browser does not let pages copy images, so it was saved as a file.";
    }
  }

  async copyLink(trace) {
    const link = linkTo(location.href, trace.start.run, this.stage.recording);
    await navigator.clipboard.writeText(link);
    return "Link copied.";
  }

  tell(words) {
    this.stage.speaker.sayNow(words);
    this.roles.told.textContent = words;
  }

  // Larger and with the settings put away: for a class room. The rest of the page follows by a class of the body.
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
