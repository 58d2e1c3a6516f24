// Written by `python -m tools.write_page_types` from dragonscale.web.panel_records: change it there.

export interface BarPart {
  name: string;
  role: string;
  shown: ShownAmount;
  lines?: Array<LineRow>;
  hidden?: ShownAmount;
  bound?: ShownAmount;
  share?: ShownAmount;
}
export interface BatchPoint {
  sequences: number;
  tokens: number;
  batch: string;
  plan: string;
  mfu: number;
  part: ShownAmount;
  step: ShownAmount;
  divides: number;
  bound: string;
  role: string;
  why: string;
}
export interface BatchSizes {
  tokens: number;
  sequences: number;
  seq: number;
}
export interface BestBatchesPanel {
  x: ChartAxis;
  y: ChartAxis;
  series: Array<ChartLine>;
  rules: Array<ChartRule>;
  points: Array<BatchPoint>;
  missing: Array<string>;
  done: number;
  whole: number;
}
export interface BoundRegion {
  bound: string;
  title: string;
  text: string;
}
export interface ChartAxis {
  label: string;
  unit: string;
  log?: boolean;
  binary?: boolean;
  zero?: boolean;
  from?: number;
  upto?: number;
}
export interface ChartLine {
  name: string;
  role: string;
  points: Array<Array<number>>;
  dashed?: boolean;
  dots?: boolean;
  line?: boolean;
  band?: Array<any>;
}
export interface ChartMark {
  x: number;
  y: number;
  text: string;
  role?: string;
}
export interface ChartRule {
  at: number;
  text: string;
  role: string;
  along?: string;
}
export interface CoursePanel {
  chapters: Array<LearnChapter>;
}
export interface DrawnAxis {
  name: string;
  degree: number;
  role: string;
  splits: string;
  lies: string;
  moves: Array<Move>;
}
export interface HeldPart {
  name: string;
  role: string;
  shown: ShownAmount;
  lines?: Array<HeldRow>;
}
export interface HeldRow {
  what: string;
  section: string;
  bytes: ShownAmount;
  since?: string;
  until?: string;
}
export interface Help {
  change: string;
  needs: string;
  gain: ShownAmount;
}
export interface LearnChapter {
  title: string;
  about: string;
  chapter: string;
  page: string;
  picture: string;
  problems: Array<Record<string, string>>;
}
export interface Leftover {
  name: string;
  shown: ShownAmount;
}
export interface LineRow {
  what: string;
  section: string;
  phase: string;
  kind: string;
  axes: Array<string>;
  times: number;
  flops: ShownAmount;
  hbm: ShownAmount;
  sent: ShownAmount;
  bound: ShownAmount;
  expected: ShownAmount;
  exposed: ShownAmount;
}
export interface LinesPanel {
  x: ChartAxis;
  y: ChartAxis;
  series: Array<ChartLine>;
  rules: Array<ChartRule>;
  marks: Array<ChartMark>;
  words: Array<string>;
  plan: string;
  about: string;
}
export interface MemoryPanel {
  parts: Array<HeldPart>;
  used?: ShownAmount;
  limit?: ShownAmount;
  rest?: Array<Leftover>;
  fits?: Array<ShownFigure>;
}
export interface MeshPanel {
  slice: string;
  axes: Array<DrawnAxis>;
  frames: Array<Array<any>>;
  dots: Array<Array<any>>;
  wiring: string;
  chip: string | ShownAmount;
  chips?: ShownAmount;
  copies?: number;
}
export interface Move {
  name: string;
  bytes: ShownAmount;
  seconds: ShownAmount;
  exposed: ShownAmount;
  hidden: boolean;
}
export interface PhasesPanel {
  total: ShownAmount;
  parts: Array<BarPart>;
}
export interface PlanRow {
  plan: string;
  step: ShownAmount;
  mfu: ShownAmount;
  slower: string;
  memory: ShownAmount;
  runnable: boolean;
  verifiable: boolean;
  bound_by: string;
}
export interface RlAnswer {
  notes: Array<string>;
  ways: Array<RlWay>;
  feasible: boolean;
  sentence: string;
  plan: string;
  about: string;
  advice: string;
  figures: Array<ShownFigure>;
}
export interface RlWay {
  mode: string;
  stack: string;
  train: string;
  rollout: string;
  train_chips: number;
  rollout_chips: number;
  feasible: boolean;
  step: ShownAmount;
  rate: ShownAmount;
}
export interface ScalingPanel {
  x: ChartAxis;
  y: ChartAxis;
  series: Array<ChartLine>;
  rules: Array<ChartRule>;
  words: Array<string>;
  marks: Array<ChartMark>;
  rows: Array<SliceScale>;
}
export interface ShownAmount {
  value: number | null;
  unit: string;
  text: string;
  why: string;
}
export interface ShownFigure {
  label: string;
  number: ShownAmount;
  about: string;
  more?: Array<any>;
  met?: boolean | null;
}
export interface SliceScale {
  on: string;
  chips: number;
  here: boolean;
  plan: string;
  step: ShownAmount;
  mfu: ShownAmount;
  efficiency: ShownAmount;
  bound_by: string;
}
export interface SliderStop {
  value: number;
  text: string;
  typed?: string;
  on?: string;
}
export interface SlidersPanel {
  batch: Array<SliderStop>;
  seq: Array<SliderStop>;
  chips: Array<SliderStop>;
  plan: Record<string, any>;
  at: Record<string, number>;
}
export interface StackBeside {
  stack: string;
  plan: string;
  tight: boolean;
  mostly: string;
  step: ShownAmount;
  mfu: ShownAmount;
}
export interface TimePanel {
  parts: Array<BarPart>;
  total?: ShownAmount;
  lower?: ShownAmount;
  upper?: ShownAmount;
  hidden?: ShownAmount;
}
export interface TimelinePanel {
  total: ShownAmount;
  tracks: Array<Track>;
  about?: string;
}
export interface Track {
  name: string;
  slices: Array<Array<any>>;
}
export interface TrainAnswer {
  model: string;
  slice: string;
  stack: string;
  stack_why: string;
  dtype: string;
  on: string;
  parameters: ShownAmount;
  batch: BatchSizes;
  searched: string;
  slices: Array<any>;
  stacks: Array<StackBeside>;
  neighbours: Array<any>;
  notes: Array<string>;
  feasible: boolean;
  sentence: string;
  figures: Array<ShownFigure>;
  chips?: number;
  bound_by?: string;
  advice?: string;
  problems?: Array<string>;
  gradients?: string;
  plan?: string;
  plan_words?: string;
  settings?: Record<string, any>;
  divides?: number;
  band?: string;
  region?: BoundRegion | null;
  helps?: Array<Help>;
  plans?: Array<PlanRow>;
  run?: Array<ShownFigure>;
}
export interface WhyFacts {
  id: string;
  title: string;
  sentence: string;
  number: ShownAmount;
  steps: Array<WhyStep>;
  compared: Record<string, any> | null;
  error: string;
  sources: Array<Record<string, string>>;
  docs: Record<string, string> | null;
  more: boolean;
}
export interface WhyFormula {
  id: string;
  formulas: Array<Record<string, any>>;
  letters: Array<WhyLetter>;
  crossovers: Array<string>;
  notes: Array<string>;
}
export interface WhyLetter {
  letter: string;
  math: Array<any>;
  value: string;
  what: string;
  from: string;
}
export interface WhyRow {
  name: string;
  number: ShownAmount;
  note: string;
}
export interface WhyStep {
  title: string;
  text: string;
  rows?: Array<WhyRow>;
  total?: ShownAmount | null;
  columns?: Array<string>;
  lines?: Array<Array<any>>;
}

/** Panels by view; one that has no record yet is `any`. */
export interface Views {
  train: { answer?: TrainAnswer; time?: TimePanel; memory?: MemoryPanel; mesh?: MeshPanel; sliders?: SlidersPanel; timeline?: TimelinePanel; batches?: LinesPanel; best_batches?: BestBatchesPanel; scaling?: ScalingPanel; [panel: string]: any };
  serve: { memory?: MemoryPanel; mesh?: MeshPanel; timeline?: TimelinePanel; [panel: string]: any };
  rl: { answer?: RlAnswer; phases?: PhasesPanel; [panel: string]: any };
  why: { facts?: WhyFacts; formula?: WhyFormula; [panel: string]: any };
  learn: { course?: CoursePanel; [panel: string]: any };
}

export type Panels<V> = V extends keyof Views ? Views[V] : any;
