// A probability as a percentage. Pure.

/** Never rounded to a wrong certainty. */
export function percent(value) {
  if (value === null || value === undefined) return "unknown";
  if (value > 0 && value < 0.001) return "<0.1%";
  if (value < 1 && value >= 0.9995) return ">99.9%";
  const digits = value < 0.1 || (value > 0.995 && value < 1) ? 1 : 0;
  return `${(100 * value).toFixed(digits)}%`;
}
