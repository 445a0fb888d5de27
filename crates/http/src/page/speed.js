// Tokens a second of all requests, over the last minute.

const SECONDS = 60;

export class SpeedLine {
  constructor(canvas) {
    this.canvas = canvas;
    this.last = null;
    this.points = [];
  }

  /** The counts of a snapshot that has just come. */
  add(generated, prompt, busy) {
    const now = performance.now() / 1000;
    const seconds = this.last && now - this.last.now;
    // A server that has begun anew counts from 0.
    if (seconds > 0.05 && generated >= this.last.generated) {
      const speed = (count) => (busy || this.last.busy ? count / seconds : 0);
      this.points.push({
        now,
        generated: speed(generated - this.last.generated),
        prompt: speed(prompt - this.last.prompt),
      });
    }
    this.points = this.points.filter((point) => now - point.now < SECONDS);
    this.last = { now, generated, prompt, busy };
    this.draw();
  }

  /** The speed now; nothing while the server is idle. */
  text() {
    const { generated, prompt } = this.points.at(-1) ?? {};
    if (generated === undefined || !this.last.busy) return "";
    const text = (speed) => speed.toLocaleString("en", { maximumFractionDigits: speed < 100 ? 1 : 0 });
    const read = prompt > 0 ? `, prompts ${text(prompt)}` : "";
    return `${text(generated)} tokens/s${read}`;
  }

  draw() {
    const { canvas, points } = this;
    const [width, height, scale] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio];
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const brush = canvas.getContext("2d");
    brush.scale(scale, scale);
    const end = points.at(-1)?.now ?? 0;
    const most = Math.max(...points.map(({ generated }) => generated), 1);
    const x = ({ now }) => width - ((end - now) / SECONDS) * width;
    const y = ({ generated }) => height - 1.5 - (generated / most) * (height - 3);
    brush.beginPath();
    points.forEach((point) => brush.lineTo(x(point), y(point)));
    brush.strokeStyle = getComputedStyle(canvas).color;
    brush.lineWidth = 1.5;
    brush.lineJoin = "round";
    brush.stroke();
  }
}
