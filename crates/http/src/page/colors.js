// A color for each request: neighbors differ, and a request keeps its own.

/** The golden angle, which spreads hues whatever their number. */
const ANGLE = 137.508;

export const colorOf = (id) => `oklch(${lightness()} 0.12 ${((id * ANGLE + 200) % 360).toFixed(1)})`;

/** A color of the style sheet. */
export const styled = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const lightness = () => styled("sequence-lightness");
