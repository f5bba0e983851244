// Lab

/** Called once by the Gradio component. */
export function mountLab({ element }) {}
