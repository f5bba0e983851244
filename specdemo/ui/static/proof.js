// Is it the same?

/** Called once by the Gradio component. */
export function mountProof({ element }) {}
