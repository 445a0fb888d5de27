// Memory against added time, as a curve.

const TRADE_OFFS = { width: 288, height: 120, left: 8, right: 8, top: 10, bottom: 22 };

/** The curve of a plan's trade-offs, or `null` without any. */
function tradeOffCurve(plan) {
  const points = plan.tradeOffs;
  if (points.length < 2) return null;
  const { width, height, left, right, top, bottom } = TRADE_OFFS;
  const sizes = points.map((point) => point.bytes), most = Math.max(...sizes), least = Math.min(...sizes);
  const slowest = Math.max(...points.map((point) => point.added_time), 1e-9);
  const x = (bytes) => left + ((width - left - right) * (bytes - least)) / Math.max(1, most - least);
  const y = (time) => height - bottom - ((height - top - bottom) * time) / slowest;
  const at = points.map((point) => x(point.bytes).toFixed(1) + "," + y(point.added_time).toFixed(1));
  const dots = points.map((point, i) => {
    const [cx, cy] = at[i].split(",");
    return `<circle cx="${cx}" cy="${cy}" r="3"><title>${shortBytes(point.bytes)}: +${(100 * point.added_time).toFixed(2)} % time</title></circle>`;
  });
  const curve = make("div", { className: "curve" });
  curve.innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Memory against added time">` +
    `<line x1="${left}" y1="${y(0)}" x2="${width - right}" y2="${y(0)}"/><polyline points="${at.join(" ")}"/>${dots.join("")}` +
    `<text x="${left}" y="${height - 6}">${shortBytes(least)}</text>` +
    `<text x="${width - right}" y="${height - 6}" text-anchor="end">${shortBytes(most)}</text>` +
    `<text x="${width - right}" y="${top + 6}" text-anchor="end">+${(100 * slowest).toFixed(2)} % time</text></svg>`;
  return curve;
}
