// The toolbar of the stage: opens recordings and trace files, saves and shares the run, and has the projector switch.

import { element, recall, remember } from "../common/dom.js";
import { fetchRecording, listRecordings, openTrace } from "./recordings.js";
import { fileStem, frame, frameOf, linkTo, linkWords, offlinePage, pictureOf, saveFile } from "./share.js";
import { named } from "./tokens.js";
import { settingWords } from "../common/words.js";

const PROJECTOR_KEY = "specdemo-projector";
const TOLD_MS = 6000;
const SAVERS = ["save-trace", "save-page", "copy-image", "copy-link", "embed"];

const pageName = (run) => `${fileStem(run)}.html`;

export class Toolbar {
  constructor(stage, base) {
    this.stage = stage;
    this.base = base;
    this.roles = stage.roles;
    this.wireRecordings();
    for (const role of SAVERS) this.roles[role].addEventListener("click", () => this.share(role));
    this.wireMenu();
    this.wireProjector();
    this.enable(false);
  }

  enable(runs) {
    for (const role of SAVERS) this.roles[role].disabled = !runs;
  }

  /** Fill the menu of recordings, and play the recording `wanted` if there is one; resolves to all. */
  async offerRecordings(wanted) {
    if (wanted) await this.playRecording(wanted);
    const recordings = await listRecordings(this.base).catch(() => []);
    const file = this.roles.recordings.querySelector("[value=file]");
    for (const { name, title, device } of recordings) {
      const option = element("option", "", title);
      option.title = device;
      option.value = name;
      this.roles.recordings.insertBefore(option, file);
    }
    if (recordings.some(({ name }) => name === wanted)) this.roles.recordings.value = wanted;
    return recordings;
  }

  /** Play a built-in recording in place of the current run; resolves to true once it is shown, else to false. */
  playRecording(name) {
    return this.playInstead(() => fetchRecording(this.base, name), name);
  }

  playInstead(fetchText, recording) {
    this.stopRun();
    return this.play(fetchText, recording);
  }

  /** True if the menu has the recording `name`. */
  offers(name) {
    return [...this.roles.recordings.options].some(({ value }) => value === name);
  }

  /** Stop the current run, because nobody would see the rest of it; the visitor's run goes on during the lessons. */
  stopRun() {
    const { arriving, lesson } = this.stage;
    if (!lesson || arriving?.isOfLesson || !arriving?.isArriving) document.querySelector("#stop:enabled")?.click();
  }

  /** Play a finished run once it has arrived, unless another run has begun or has been chosen in the meantime. */
  async play(fetchText, recording) {
    const { stage } = this;
    const { shown, arriving } = stage;
    const asked = (this.asked = {});
    const isOvertaken = () => this.asked !== asked || stage.shown !== shown || (stage.arriving ?? arriving) !== arriving;
    try {
      const text = await fetchText();
      if (isOvertaken()) return false;
      stage.load(text, { recording });
    } catch (error) {
      if (isOvertaken()) return false;
      stage.put(stage.newRun());
      stage.take({ type: "error", message: error.message });
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

  // Closes the menu on Escape and after a press elsewhere.
  wireMenu() {
    const { "save-menu": menu } = this.roles;
    document.addEventListener("pointerdown", ({ target }) => {
      if (!menu.contains(target)) menu.open = false;
    });
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.querySelector("summary").focus();
      event.stopPropagation();
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
      const done = { "save-trace": "Trace saved.", "save-page": "Page saved. The page replays the run offline.", "copy-link": linkWords(recording) };
      this.tell(done[role] ?? (role === "embed" ? await this.embed(trace, recording) : await this.copyImage(run)));
    } catch (error) {
      this.tell(`Sharing failed: ${error.message}. Try again.`);
    }
  }

  /**
   * Copy the HTML of a frame with the run; resolves to a sentence about what was done. The server keeps no visitor's run,
   * so the frame of such a run shows the offline page, which is saved as a file.
   */
  async embed(trace, recording) {
    if (recording) {
      await navigator.clipboard.writeText(frameOf(location.href, recording));
      return "Embed code copied. Paste the code into your page.";
    }
    await navigator.clipboard.writeText(frame(pageName(trace.start.run)));
    await this.savePage(trace);
    return "Embed code copied and offline page saved. Upload the page to your site, then paste the code.";
  }

  async savePage(trace) {
    const response = await fetch(new URL("player.html", this.base));
    if (!response.ok) throw new Error(`the server returned status ${response.status}`);
    saveFile(pageName(trace.start.run), "text/html", offlinePage(await response.text(), trace.events, linkTo(location.href, trace.start.run, this.stage.recording)));
  }

  /** Copy a picture of the run, or save it if the browser cannot copy; resolves to a sentence about what was done. */
  async copyImage(run) {
    const { root, plots } = this.stage;
    const words = {
      heading: `${document.title} · ${location.origin}${location.pathname}`,
      caption: `${named(settingWords(run))} ${run.started_at.slice(0, 10)}.`,
    };
    const picture = pictureOf(root, words, (name, size) => plots.pictureOf(name, size));
    try {
      // The promise is passed on, because Safari lets a page copy only while it handles the press.
      await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
      return "Image copied.";
    } catch {
      saveFile(`${fileStem(run)}.png`, "image/png", await picture);
      return "This browser can't copy images, so the image was saved as a file.";
    }
  }

  tell(words) {
    this.stage.speaker.sayNow(words);
    const { told } = this.roles;
    told.textContent = words;
    clearTimeout(this.silence);
    this.silence = setTimeout(() => (told.textContent = ""), TOLD_MS);
  }

  // The projector switch is for classrooms: it sets a class of the body, by which CSS enlarges the page, and hides the
  // settings and, unless they are wanted, the charts.
  wireProjector() {
    const { projector, "show-charts": charts } = this.roles;
    charts.addEventListener("change", () => this.stage.root.toggleAttribute("data-charts-shown", charts.checked));
    projector.checked = recall(PROJECTOR_KEY) === "on";
    const apply = () => document.body.classList.toggle("sd-projector", projector.checked);
    projector.addEventListener("change", () => {
      apply();
      this.stage.reflow();
      remember(PROJECTOR_KEY, projector.checked ? "on" : "off");
    });
    addEventListener("beforeprint", () => document.body.classList.remove("sd-projector")); // paper is read from near
    addEventListener("afterprint", apply);
    apply();
  }
}
