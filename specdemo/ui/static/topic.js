// What of the stage a lesson needs: which lane, figures and charts stay in sight while its recording or run is shown.

export class Topic {
  constructor(root) {
    this.root = root;
    this.next = {};
    this.current = {}; // of the run that is shown
  }

  /**
   * Let the run that begins next be shown for this: `focus` leaves one lane in sight, `figures` those of the
   * headline, and of the charts the one that `charts` names ("none": none).
   */
  expect(topic) {
    this.next = topic;
  }

  /** Another run is shown now, in full where nothing else was expected. */
  begin() {
    const { focus, figures, charts } = (this.current = this.next);
    this.next = {};
    const { dataset } = this.root;
    for (const [name, value] of Object.entries({ focus, charts })) {
      if (value) dataset[name] = value;
      else delete dataset[name];
    }
    this.root.toggleAttribute("data-topic", Boolean(figures));
    for (const figure of this.root.querySelectorAll(".sd-figure")) {
      figure.hidden = Boolean(figures) && !figures.includes(figure.querySelector("[data-figure]").dataset.figure);
    }
    this.root.querySelector(".sd-figures").hidden = figures?.length === 0;
  }
}
