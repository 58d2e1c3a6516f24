// Written by `python -m tools.write_page_types` from dragonscale.web.panel_records: change it there.

export interface AgainstPanel {
  text: string;
  changes: Array<ChangedSetting>;
  best?: BestBeside | null;
  measured?: GapPanel | null;
}
export interface BarPart {
  name: string;
  role: string;
  shown: ShownAmount;
  lines?: Array<LineRow>;
  hidden?: ShownAmount;
  bound?: ShownAmount;
  share?: ShownAmount;
}
export interface BatchCrossing {
  text: string;
  number: ShownAmount;
  here: boolean;
  formula?: string;
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
export interface BesideCell {
  number: BesideNumber;
  ratio: string;
  differs: boolean;
}
export interface BesideNumber {
  value: number | null;
  text: string;
  why: string;
  unit?: string;
}
export interface BesidePanel {
  chips: Array<ChipBeside>;
  rows: Array<BesideRow>;
  roofs: Array<DrawnRoof>;
}
export interface BesideRow {
  title: string;
  cells: Array<BesideCell>;
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
export interface BestBeside {
  plan: string;
  step: ShownAmount;
  mfu: ShownAmount;
}
export interface BoundRegion {
  bound: string;
  title: string;
  text: string;
}
export interface CataloguePanel {
  version: string;
  docs: boolean;
  models: Array<string>;
  stacks: Array<string>;
  engines: Array<string>;
  dtypes: Array<string>;
  slices: Array<string>;
  stack_words: Record<string, StackWords>;
  presets: Array<PresetChoice>;
  chips: Array<ChipChoice>;
  fields: Record<string, Array<FlagField>>;
  colours: ThemeColours;
}
export interface ChangedSetting {
  setting: string;
  plan: string;
  from: string;
  to: string;
  step: ShownAmount;
  gain: string;
  better: boolean;
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
export interface ChipBeside {
  name: string;
  title: string;
  kind: string;
  released: string;
}
export interface ChipChoice {
  name: string;
  title: string;
  kind: string;
}
export interface ChipFactRow {
  path: string;
  source: string;
  number: ShownAmount;
  about: string;
  source_text: string;
  also: Array<OtherValue>;
}
export interface ChipPanel {
  name: string;
  title: string;
  kind: string;
  released: string;
  network: string;
  largest: string;
  price: string;
  sentence: string;
  figures: Array<ShownFigure>;
  parts: Array<ChipPart>;
  groups: Array<FactGroup>;
  sources: Array<NamedText>;
}
export interface ChipPart {
  part: string;
  count: ShownAmount;
  rate: ShownAmount;
}
export interface ChipRow {
  name: string;
  title: string;
  kind: string;
  released: string;
  network: string;
  largest: string;
  cells: Record<string, ShownAmount>;
}
export interface ChipsTable {
  columns: Array<TableColumn>;
  rows: Array<ChipRow>;
}
export interface CollectiveCurve {
  x: ChartAxis;
  y: ChartAxis;
  series: Array<ChartLine>;
  rules: Array<ChartRule>;
  marks: Array<ChartMark>;
}
export interface CollectivePanel {
  bytes: number;
  figures: Array<ShownFigure>;
  kinds: Array<string>;
  notes: Array<string>;
  sentence: string;
  advice: string;
  regime: string;
  mesh: Record<string, number>;
  axes: Array<string>;
  tiers: Array<PassedTier>;
}
export interface ComparedBar {
  key: string;
  label: string;
  total: ShownAmount;
  parts: Array<BarPart>;
  limit?: number | null;
}
export interface ComparedBars {
  bars: Array<ComparedBar>;
  scale: number;
  what?: string;
}
export interface ComparedCell {
  number: ShownAmount;
  band: string;
  mark: string;
  text: string;
}
export interface ComparedRow {
  name: string;
  less: boolean;
  cells: Array<ComparedCell>;
}
export interface ComparedSetting {
  name: string;
  cells: Array<string>;
}
export interface ComparedSide {
  key: string;
  label: string;
  slice: string;
  software: string;
  chips: number;
  feasible: boolean;
  bound_by: string;
  problems: Array<string>;
  plan: string;
  fields: Record<string, any>;
}
export interface CopiedFile {
  name: string;
  text: string;
  use: string;
}
export interface CoursePanel {
  chapters: Array<LearnChapter>;
}
export interface CrossoversPanel {
  id: string;
  crossovers: Array<string>;
}
export interface DrawnArray {
  text: string;
  name: string;
  rows: DrawnSide;
  cols: DrawnSide;
  others: Array<DrawnSide>;
  copied: Array<string>;
  copies: number;
  partial: Array<string>;
  summands: number;
  held: Array<number>;
  shape: string;
  bytes: ShownAmount;
}
export interface DrawnAxis {
  name: string;
  degree: number;
  role: string;
  splits: string;
  lies: string;
  moves: Array<Move>;
}
export interface DrawnPoint {
  name: string;
  intensity: number;
  rate: number;
  bound: string;
  why: string;
  role?: string;
  roof?: string;
  phase?: string;
  section?: string;
  text?: string;
}
export interface DrawnRoof {
  name: string;
  peak: number;
  bandwidth: number;
  role?: string;
  why?: string;
  dashed?: boolean;
}
export interface DrawnSide {
  dim: string;
  axes: Array<string>;
  cuts: number;
  drawn: number;
  role: string;
  size: string;
}
export interface DroppedConfig {
  name: string;
  text: string;
  in_address: boolean;
  characters: number;
}
export interface ExtraPart {
  part: string;
  count: ShownAmount;
}
export interface FactGroup {
  title: string;
  facts: Array<ChipFactRow>;
}
export interface FilesPanel {
  target: string;
  version: string;
  launcher: string;
  expected: Array<string>;
  notes: Array<string>;
  files: Array<NamedText>;
  differences: Array<any>;
  bundle: string;
  cli: string;
}
export interface FlagField {
  name: string;
  flag: string;
  group: string;
  place: boolean;
  switch: boolean;
  value: string;
  needed: boolean;
  type: string | Array<string>;
  description: string;
  examples?: Array<string>;
  default?: any;
  items?: Record<string, string>;
  enum?: Array<any>;
}
export interface FleetSamples {
  running: Array<number>;
  waiting: Array<number>;
  pages: Array<number>;
  busy: Array<number>;
  replicas: Array<number>;
  tokens: Array<number>;
}
export interface FleetSizes {
  replicas: number;
  kv_tokens: number;
  rate: number;
  seconds: number;
}
export interface FormatBytes {
  format: string;
  bytes: ShownAmount;
}
export interface FrontierPanel {
  points: Array<FrontierSpot>;
  x: ChartAxis;
  y: ChartAxis;
  frontier: Array<Array<number>>;
  rules: Array<ChartRule>;
  about: string;
}
export interface FrontierSpot {
  x: number;
  y: number;
  name: string;
  group: string;
  about: string;
  role: string;
  chosen: boolean;
  meets: boolean;
  fields: Record<string, string>;
}
export interface GapPanel {
  text: string;
  suspects: Array<GapSuspect>;
}
export interface GapSuspect {
  cause: string;
  look: string;
  step: ShownAmount;
  explains: string;
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
export interface JudgedCommand {
  view: string;
  fields: Record<string, any>;
  software: string;
  version: string;
  notes: Array<string>;
  ignored: Array<string>;
  unplanned: Array<string>;
  unknown: Array<string>;
  plan: string;
  settings: Record<string, any>;
  headline: string;
  missing: Array<string>;
}
export interface KnobRow {
  name: string;
  title: string;
  value: string;
  factor: number;
  own: ShownAmount;
  now: ShownAmount;
  stops: Array<KnobStop>;
}
export interface KnobStop {
  value: string;
  factor: number;
  text: string;
}
export interface KnobsPanel {
  chip: string;
  title: string;
  knobs: Array<KnobRow>;
  kept: Array<string>;
}
export interface LaidArray {
  array: string;
  shape: string;
  bytes: ShownAmount;
  total: ShownAmount;
  replicas: ShownAmount;
}
export interface LauncherChoice {
  name: string;
  title: string;
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
export interface LengthsPanel {
  meets: ShownAmount;
  rule: ShownAmount;
  cache: LinesOverLength;
  flops: LinesOverLength;
}
export interface LetterSlider {
  name: string;
  size: number;
  text: string;
  stops: Array<LetterStop>;
}
export interface LetterStop {
  size: number;
  text: string;
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
export interface LinesOverLength {
  x: ChartAxis;
  y: ChartAxis;
  series: Array<ChartLine>;
  rules: Array<ChartRule>;
  marks?: Array<ChartMark>;
}
export interface LinesPanel {
  series: Array<ChartLine>;
  rules: Array<ChartRule>;
  marks: Array<ChartMark>;
  words: Array<string>;
  x?: ChartAxis;
  y?: ChartAxis;
  plan?: string;
  about?: string;
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
  chip: string;
  chips?: ShownAmount;
  copies?: number;
}
export interface MeshSide {
  name: string;
  size: number;
  role: string;
}
export interface ModelLine {
  name: string;
  parameters: ShownAmount;
  text: string;
  notes: Array<string>;
}
export interface ModelPanel {
  name: string;
  advice: string;
  sequence: number;
  shape: string;
  sentence: string;
  figures: Array<ShownFigure>;
  parameters: StackedSum;
  flops: StackedSum;
  weights: Array<FormatBytes>;
  stored: Array<FormatBytes>;
  extra: Array<ExtraPart>;
  activations: Array<PolicyBytes>;
  notes: Array<string>;
}
export interface ModelsTable {
  columns: Array<TableColumn>;
  rows: Array<PresetRow>;
}
export interface Move {
  name: string;
  bytes: ShownAmount;
  seconds: ShownAmount;
  exposed: ShownAmount;
  hidden: boolean;
  phase?: string;
}
export interface NamedText {
  name: string;
  text: string;
}
export interface NextSimulation {
  text: string;
  command: string;
  fields: Record<string, any>;
}
export interface NotationPanel {
  wrong: string;
  at: Array<number> | null;
  letters: Array<LetterSlider>;
}
export interface OperationCurve {
  letter: string;
  letters: Array<string>;
  series: Array<ChartLine>;
  x?: ChartAxis;
  y?: ChartAxis;
  rules?: Array<ChartRule>;
  marks?: Array<ChartMark>;
}
export interface OperationPanel {
  advice: string;
  expression: string;
  chip: string;
  chip_title: string;
  bound_by: string;
  sentence: string;
  notes: Array<string>;
  figures: Array<ShownFigure>;
  resources: Array<ResourceRow>;
  crossovers: Array<ShownCrossover>;
}
export interface OtherValue {
  source: string;
  note: string;
  number: ShownAmount;
  source_text: string;
}
export interface OverTimePanel {
  seconds: ShownAmount;
  moments: Array<number>;
  texts: Array<string>;
  fleet: FleetSamples;
  replicas: Array<ReplicaSamples>;
  arrivals: RequestRates;
  about: string;
  room: number;
}
export interface PassedTier {
  tier: string;
  children: ShownAmount;
  link: ShownAmount;
  seconds: ShownAmount;
  into: ShownAmount;
  out: ShownAmount;
}
export interface PassesPanel {
  mesh: ShardMesh;
  passes: Array<ShardPass>;
}
export interface PercentileRow {
  name: string;
  cells: Array<ShownAmount>;
  about: string;
}
export interface PercentilesPanel {
  series: Array<ChartLine>;
  rules: Array<ChartRule>;
  x: ChartAxis;
  y: ChartAxis;
  columns: Array<string>;
  rows: Array<PercentileRow>;
}
export interface PhaseBar {
  name: string;
  title: string;
  about: string;
  total: ShownAmount;
  lower: ShownAmount;
  parts: Array<BarPart>;
  roofline?: ShownAmount;
  beside?: ShownAmount;
}
export interface PhaseBars {
  bars: Array<PhaseBar>;
}
export interface PhasesPanel {
  total: ShownAmount;
  parts: Array<BarPart>;
}
export interface PlacedPoint {
  x: number;
  y: number;
}
export interface PlanFilePanel {
  name: string;
  text: string;
  use: string;
  file: NamedText | null;
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
export interface PolicyBytes {
  policy: string;
  bytes: ShownAmount;
}
export interface PresetChoice {
  name: string;
  family: string;
  parameters: string;
}
export interface PresetRow {
  name: string;
  family: string;
  moe: boolean;
  cells: Record<string, ShownAmount>;
}
export interface ProblemPanel {
  problem: string;
  title: string;
  chapter: string;
  seed: number;
  ask: string;
  unit: string;
  tolerance: number;
  options: Array<string>;
  hints: Array<string>;
  hint_count: number;
  answered: string;
  right: boolean | null;
  told: string;
  answer: string;
  value: number | null;
  solution: Array<string>;
  check: string;
  page: string;
  again: string;
  next: string;
}
export interface ProgramPanel {
  program: string;
}
export interface ReplicaSamples {
  index: number;
  pool: string;
  name: string;
  running: Array<number>;
  waiting: Array<number>;
  pages: Array<number>;
  tokens: Array<number>;
}
export interface ReplicaShown {
  name: string;
  pool: string;
  batch: ShownAmount;
  busy: ShownAmount;
  tokens: ShownAmount;
}
export interface ReplicasPanel {
  columns: Array<string>;
  rows: Array<ReplicaShown>;
}
export interface RequestRates {
  arriving: Array<Array<number>>;
  ending: Array<Array<number>>;
}
export interface ResourceRow {
  name: string;
  formula: string;
  role: string;
  seconds: ShownAmount;
}
export interface RlAnswer {
  notes: Array<string>;
  ways: Array<RlWay>;
  feasible: boolean;
  sentence: string;
  figures: Array<ShownFigure>;
  plan?: string;
  about?: string;
  advice?: string;
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
export interface RooflinePanel {
  roofs: Array<DrawnRoof>;
  points: Array<DrawnPoint>;
  ridge?: ShownAmount;
  about?: string;
  chip?: string;
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
export interface ScatterPanel {
  pictures: Array<ScatterPicture>;
}
export interface ScatterPicture {
  title: string;
  about: string;
  x: ChartAxis;
  y: ChartAxis;
  points: Array<ScatterPoint>;
}
export interface ScatterPoint {
  x: number;
  y: number;
  name: string;
  role: string;
}
export interface ServeBatchesPanel {
  series: Array<ChartLine>;
  x: ChartAxis;
  y: ChartAxis;
  rules: Array<ChartRule>;
  marks: Array<ChartMark>;
  crossings: Array<BatchCrossing>;
  about?: string;
}
export interface ServePanel {
  feasible: boolean;
  meets: boolean;
  sentence: string;
  notes: Array<string>;
  configs: Array<ServeRow>;
  sizes: ServeSizes;
  plan?: string;
  config?: string;
  settings?: Record<string, string>;
  slice?: string;
  copy_slice?: string;
  engine?: string;
  engine_why?: string;
  violations?: Array<string>;
  formats?: string;
  bound_by?: string;
  advice?: string;
  error?: string;
  fleet?: string;
  better?: string;
  figures?: Array<ShownFigure>;
  searched?: number;
  point?: PlacedPoint;
  simulate?: Record<string, string> | null;
}
export interface ServeRow {
  plan: string;
  config: string;
  slice: string;
  engine: string;
  bound_by: string;
  formats: string;
  batch: ShownAmount;
  ttft: ShownAmount;
  tpot: ShownAmount;
  tokens: ShownAmount;
  cost: ShownAmount;
  chips: ShownAmount;
  meets: boolean;
  fields: Record<string, string>;
}
export interface ServeSizes {
  batch: number | null;
  max_batch: number | null;
  prompt: number;
  output: number;
  chips: number;
  chip: string;
  slices: Array<Array<number | string>>;
  several: boolean;
  context: number;
  rate: number | null;
  caches: Array<string>;
}
export interface ShardLine {
  einsum: string;
  case: number;
  arrays: Array<LaidArray>;
  ways: Array<ShardWay>;
}
export interface ShardMesh {
  axes: Array<MeshSide>;
  chips: number;
  rows: number;
  places: Array<string>;
}
export interface ShardMove {
  when: string;
  axes: Array<string>;
  array: string;
  result: string;
  collective: string;
  bytes: ShownAmount;
  sent: ShownAmount;
  seconds: ShownAmount;
  book: ShownAmount;
}
export interface ShardPanel {
  sentence: string;
  on: string;
  expression: string;
  figures: Array<ShownFigure>;
  bound_by: string;
  notes: Array<string>;
  mesh: ShardMesh;
}
export interface ShardPass {
  name: string;
  lines: Array<ShardLine>;
}
export interface ShardStage {
  kind: string;
  title: string;
  axes: Array<string>;
  role: string;
  arrays: Array<DrawnArray>;
  move?: number;
}
export interface ShardWay {
  local: string;
  computes: boolean;
  bound_by: string;
  repeated_over: Array<string>;
  free_slices: Array<string>;
  lower: ShownAmount;
  upper: ShownAmount;
  sent: ShownAmount;
  flops: ShownAmount;
  read: ShownAmount;
  written: ShownAmount;
  times: Array<HeldPart>;
  moves: Array<ShardMove>;
  stages: Array<ShardStage>;
}
export interface SheetPanel {
  blocks: Array<Record<string, any>>;
  notes: Array<string>;
}
export interface ShownAmount {
  value: number | null;
  unit: string;
  text: string;
  why: string;
}
export interface ShownCrossover {
  variable: string;
  value: number;
  below: string;
  above: string;
  number: ShownAmount;
}
export interface ShownFigure {
  label: string;
  number: ShownAmount;
  about: string;
  more?: Array<any>;
  met?: boolean | null;
}
export interface SidesPanel {
  kind: string;
  model: string;
  workload: string;
  winner: string;
  notes: Array<string>;
  sides: Array<ComparedSide>;
  rows: Array<ComparedRow>;
  time: ComparedBars;
  memory: ComparedBars;
  settings: Array<ComparedSetting>;
  sentences: Array<string>;
}
export interface SimulatePanel {
  feasible: boolean;
  meets: boolean | null;
  holds: boolean;
  sentence: string;
  tone: string;
  bound_by: string;
  advice: string;
  requests: string;
  notes: Array<string>;
  capacity: string;
  figures: Array<ShownFigure>;
  next: NextSimulation | null;
  sizes: FleetSizes;
}
export interface SliceAxisRow {
  axis: string;
  size: number;
  wraps: boolean;
  out: ShownAmount;
  hops: ShownAmount;
  bisection: ShownAmount;
}
export interface SlicePanel {
  slice: string;
  axes: Array<SliceAxisRow>;
  tiers: Array<SliceTierRow>;
  chip?: string;
  chips?: number;
  pods?: number;
  host_chips?: number;
  host_shape?: Array<number>;
  sentence?: string;
  figures?: Array<ShownFigure>;
  notes?: Array<string>;
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
export interface SliceTierRow {
  tier: string;
  groups: number;
  children: number;
  child: ShownAmount;
  chip: ShownAmount;
  bisection: ShownAmount;
  switches: ShownAmount;
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
  at: Record<string, number | null>;
}
export interface SoftwareChoice {
  name: string;
  title: string;
  version: string;
}
export interface StackBeside {
  stack: string;
  plan: string;
  tight: boolean;
  mostly: string;
  step: ShownAmount;
  mfu: ShownAmount;
}
export interface StackWords {
  group: string;
  about: string;
}
export interface StackedSum {
  total: ShownAmount;
  parts: Array<BarPart>;
}
export interface SuggestPanel {
  slices: Array<SuggestedSlice>;
}
export interface SuggestedSlice {
  on: string;
  chip: string;
  why: string;
  chips: string;
}
export interface TableColumn {
  name: string;
  title: string;
  unit?: string;
}
export interface TargetsPanel {
  own: string;
  software: Array<SoftwareChoice>;
  launchers: Array<LauncherChoice>;
  loads: Array<any>;
}
export interface TextsPanel {
  cli: string;
  python: string;
  toml: CopiedFile;
  file: NamedText | null;
}
export interface ThemeColours {
  light: Record<string, string>;
  dark: Record<string, string>;
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
export interface TraceFile {
  displayTimeUnit: string;
  traceEvents: Array<Record<string, any>>;
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
export interface VerifyPanel {
  fields: Record<string, any>;
  cli: string;
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

/** Panels by view; `record` is what `--json` prints. */
export interface Views {
  train: { answer?: TrainAnswer; time?: TimePanel; memory?: MemoryPanel; mesh?: MeshPanel; sliders?: SlidersPanel; roofline?: RooflinePanel; timeline?: TimelinePanel; trace?: TraceFile; batches?: LinesPanel; best_batches?: BestBatchesPanel; scaling?: ScalingPanel; against?: AgainstPanel; sheet?: SheetPanel; record?: any };
  serve: { answer?: ServePanel; time?: PhaseBars; memory?: MemoryPanel; roofline?: RooflinePanel; mesh?: MeshPanel; timeline?: TimelinePanel; frontier?: FrontierPanel; batches?: ServeBatchesPanel; sheet?: SheetPanel; record?: any };
  simulate: { answer?: SimulatePanel; over_time?: OverTimePanel; percentiles?: PercentilesPanel; replicas?: ReplicasPanel; sheet?: SheetPanel; record?: any };
  rl: { answer?: RlAnswer; phases?: PhasesPanel; sheet?: SheetPanel; record?: any };
  roofline: { notation?: NotationPanel; answer?: OperationPanel; roof?: RooflinePanel; curve?: OperationCurve; sheet?: SheetPanel; record?: any };
  shard: { notation?: NotationPanel; answer?: ShardPanel; passes?: PassesPanel; sheet?: SheetPanel; record?: any };
  collective: { answer?: CollectivePanel; curve?: CollectiveCurve; sheet?: SheetPanel; record?: any };
  chips: { table?: ChipsTable; scatter?: ScatterPanel; chip?: ChipPanel; roof?: RooflinePanel; slice?: SlicePanel; beside?: BesidePanel; knobs?: KnobsPanel; sheet?: SheetPanel; record?: any };
  models: { table?: ModelsTable; model?: ModelPanel; lengths?: LengthsPanel; program?: ProgramPanel; line?: ModelLine; config?: DroppedConfig; sheet?: SheetPanel; record?: any };
  compare: { sides?: SidesPanel; suggest?: SuggestPanel; sheet?: SheetPanel; record?: any };
  catalogue: { catalogue?: CataloguePanel };
  why: { facts?: WhyFacts; formula?: WhyFormula; crossovers?: CrossoversPanel };
  copied: { texts?: TextsPanel; plan?: PlanFilePanel; verify?: VerifyPanel };
  judge: { read?: JudgedCommand };
  export: { targets?: TargetsPanel; files?: FilesPanel };
  learn: { course?: CoursePanel; problem?: ProblemPanel };
}

export type Panels<V> = V extends keyof Views ? Views[V] : any;
