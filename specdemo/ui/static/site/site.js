// The static copy of the page: mounts the modules of the live page, and reads files in place of a server. The elements
// with the attribute data-only are those that only the live page or only the copy shows.

import { mountFooter } from "../common/footer.js";
import { mountLab } from "../lab/lab.js";
import { mountLessons } from "../learn/lessons.js";
import { mountProof } from "../proof/proof.js";
import { askedQuestion, mountQuestions, mountResults, recordedAnswer } from "../learn/quiz.js";
import { mount, stageOfPage } from "../stage/stage.js";

const HINT = "Choose a recording. The upper lane uses draft tokens; the lower lane is the target alone.";
const NO_ANSWER = { type: "error", message: "The recorded answer did not load. Try again." };

const base = new URL("../", import.meta.url).href;
const settings = JSON.parse(document.getElementById("settings").textContent);

mountTabs();
document.querySelector("[data-role=recordings] option[value=file]").remove(); // a server checks trace files
component("stage", mount, settings.stage);
stageOfPage().roles.hint.textContent = HINT;
mountRecordings();
component("lessons", mountLessons);
mountQuiz();
component("proof", mountProof, settings.proof);
showProofOnOpening();
component("lab", mountLab, settings.lab);
component("footer", mountFooter, { source: null });

// Mounts a module on the element with this id, as Gradio's component does; returns the component's properties.
function component(id, mountOn, its = {}) {
  let current = "";
  const reactions = [];
  const props = {
    get value() {
      return current;
    },
    set value(value) {
      current = value;
      for (const react of reactions) react();
    },
  };
  const watch = (_, react) => reactions.push(react);
  mountOn({ element: document.getElementById(id), props, watch, trigger: () => {}, base, settings: its });
  return props;
}

function mountTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const open = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", tab === chosen);
      tab.classList.toggle("selected", tab === chosen);
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
  };
  for (const tab of tabs) tab.addEventListener("click", () => open(tab));
  open(tabs[0]);
}

// Makes each button play its recording, and marks that of the recording on the stage.
function mountRecordings() {
  const buttons = [...document.querySelectorAll("[data-recording-name]")];
  for (const button of buttons) {
    button.addEventListener("click", () => stageOfPage().toolbar.playRecording(button.dataset.recordingName));
  }
  document.addEventListener("sd-moment", ({ detail }) => {
    for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.recordingName === detail.recording);
  });
}

// Shows the first recorded proof when the tab is opened, unless the address names one.
function showProofOnOpening() {
  const show = () => new URLSearchParams(location.search).has("proof") || document.querySelector("[data-recorded]").click();
  document.getElementById("tab-proof-button").addEventListener("click", show, { once: true });
}

// Answers a question with the events that its measurement had.
function mountQuiz() {
  component("quiz-questions", mountQuestions, settings.quiz);
  const results = component("quiz-results", mountResults);
  const stop = document.getElementById("quiz-stop"); // while it is enabled, the question is being measured
  document.getElementById("quiz-run").addEventListener("click", async () => {
    stop.disabled = false;
    results.value = "";
    results.value = await recordedAnswer(base, ...askedQuestion()).catch(() => `${JSON.stringify(NO_ANSWER)}\n`);
    stop.disabled = true;
  });
}
