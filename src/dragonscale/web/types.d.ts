// What panels of the page are: the shapes that its scripts read. `tsc` checks the scripts against this file; tests hold
// every panel that they are answered against it, unknown keys refused (`tools/page_types.py`).

export type Integer = number;

// Pieces that panels are made of

/** A number with its text; `why` is what derives it, or nothing. */
export interface ShownAmount { value: number | null; unit: string; text: string; why: string }
/** A number under its label. */
export interface ShownFigure {
  label: string; number: ShownAmount; about: string; more?: Array<any>; met?: boolean | null;
}
/** A kernel or move of the ledger. */
export interface LineRow {
  what: string; section: string; phase: string; kind: string; axes: Array<string>; times: number; flops: ShownAmount;
  hbm: ShownAmount; sent: ShownAmount; bound: ShownAmount; expected: ShownAmount; exposed: ShownAmount;
}
/** A tensor on a chip. */
export interface HeldTensorRow { what: string; section: string; bytes: ShownAmount; since?: string; until?: string }
/** A part of a bar, with the lines that it opens. */
export interface BarPart {
  name: string; role: string; shown: ShownAmount; lines?: Array<LineRow>; hidden?: ShownAmount; bound?: ShownAmount;
  share?: ShownAmount;
}
/** A part of memory. */
export interface HeldPart { name: string; role: string; shown: ShownAmount; lines?: Array<HeldTensorRow> }
/** Memory that nothing takes. */
export interface Leftover { name: string; shown: ShownAmount }
/** A side of a chart. */
export interface ChartAxis {
  label: string; unit: string; log?: boolean; binary?: boolean; zero?: boolean; from?: number; upto?: number;
}
/** A line through points. */
export interface ChartLine {
  name: string; role: string; points: Array<Array<number>>; dashed?: boolean; dots?: boolean; line?: boolean;
  band?: Array<any>;
}
/** A value of one axis that matters. */
export interface ChartRule { at: number; text: string; role: string; along?: string }
/** A chip or its wires: a peak, and what feeds it. */
export interface DrawnRoof {
  name: string; peak: number; bandwidth: number; role?: string; why?: string; dashed?: boolean;
}
/** An operation under roofs; `roof` is the one it lies under. */
export interface DrawnPoint {
  name: string; intensity: number; rate: number; bound: string; why: string; role?: string; roof?: string;
  phase?: string; group?: string; section?: string; text?: string;
}
/** A named point. */
export interface ChartMark { x: number; y: number; text: string; role?: string }
/** A collective over an axis of the mesh. */
export interface Move {
  name: string; bytes: ShownAmount; seconds: ShownAmount; exposed: ShownAmount; hidden: boolean; phase?: string;
}
/** An axis of the mesh. */
export interface DrawnAxis {
  name: string; degree: Integer; role: string; splits: string; lies: string; moves: Array<Move>;
}

// Train; its mesh, memory and timeline are those of Serve too

export interface MeshPanel {
  slice: string; axes: Array<DrawnAxis>; frames: Array<Array<any>>; dots: Array<Array<any>>; wiring: string;
  chip: string; chips?: ShownAmount; copies?: Integer;
}
export interface TimePanel {
  parts: Array<BarPart>; total?: ShownAmount; lower?: ShownAmount; upper?: ShownAmount; hidden?: ShownAmount;
}
export interface MemoryPanel {
  parts: Array<HeldPart>; used?: ShownAmount; limit?: ShownAmount; rest?: Array<Leftover>; fits?: Array<ShownFigure>;
}
export interface Track { name: string; slices: Array<Array<any>> }
export interface TimelinePanel { total: ShownAmount; tracks: Array<Track>; about?: string }
export interface BatchSizes { tokens: Integer; sequences: Integer; seq: Integer }
export interface BoundRegion { bound: string; title: string; text: string }
export interface Help { change: string; needs: string; gain: ShownAmount }
/** The best plan of another stack. */
export interface StackBeside {
  stack: string; plan: string; tight: boolean; mostly: string; step: ShownAmount; mfu: ShownAmount;
}
/** One of the best plans. */
export interface PlanRow {
  plan: string; step: ShownAmount; mfu: ShownAmount; slower: string; memory: ShownAmount; runnable: boolean;
  verifiable: boolean; bound_by: string;
}
/** The answer of the Train tab; without a plan it is the sentence and what surrounds it. */
export interface TrainAnswer {
  model: string; slice: string; stack: string; stack_why: string; dtype: string; on: string; parameters: ShownAmount;
  batch: BatchSizes; searched: string; slices: Array<any>; stacks: Array<StackBeside>; neighbours: Array<any>;
  notes: Array<string>; feasible: boolean; sentence: string; figures: Array<ShownFigure>; chips?: Integer;
  bound_by?: string; advice?: string; problems?: Array<string>; gradients?: string; plan?: string;
  plan_words?: string; settings?: Record<string, any>; divides?: Integer; band?: string; region?: BoundRegion | null;
  helps?: Array<Help>; plans?: Array<PlanRow>; run?: Array<ShownFigure>;
}
export interface SliderStop { value: Integer; text: string; typed?: string }
export interface SlidersPanel {
  batch: Array<SliderStop>; seq: Array<SliderStop>; plan: Record<string, any>; at: Record<string, Integer | null>;
}
/** The given plan over sizes of the batch; empty lines where it cannot run. */
export interface LinesPanel {
  series: Array<ChartLine>; rules: Array<ChartRule>; marks: Array<ChartMark>; words: Array<string>; x?: ChartAxis;
  y?: ChartAxis; plan?: string; about?: string;
}
/** The best plan at a batch. */
export interface BatchPoint {
  sequences: Integer; tokens: number; batch: string; plan: string; mfu: number; part: ShownAmount; step: ShownAmount;
  divides: Integer; bound: string; role: string; why: string;
}
export interface BestBatchesPanel {
  x: ChartAxis; y: ChartAxis; series: Array<ChartLine>; rules: Array<ChartRule>; points: Array<BatchPoint>;
  missing: Array<string>; done: Integer; whole: Integer;
}
/** The best plan of a slice. */
export interface SliceScale {
  on: string; chips: Integer; here: boolean; plan: string; step: ShownAmount; mfu: ShownAmount;
  efficiency: ShownAmount; bound_by: string;
}
export interface ScalingPanel {
  x: ChartAxis; y: ChartAxis; series: Array<ChartLine>; rules: Array<ChartRule>; words: Array<string>;
  marks: Array<ChartMark>; rows: Array<SliceScale>;
}
export interface BestBeside { plan: string; step: ShownAmount; mfu: ShownAmount }
/** One setting of a given plan changed. */
export interface ChangedSetting {
  setting: string; plan: string; from: string; to: string; step: ShownAmount; gain: string; better: boolean;
}
export interface GapSuspect { cause: string; look: string; step: ShownAmount; explains: string }
/** A measured step against the expected one. */
export interface GapPanel { text: string; suspects: Array<GapSuspect> }
/** A given plan beside the best one. */
export interface AgainstPanel {
  text: string; changes: Array<ChangedSetting>; best?: BestBeside | null; measured?: GapPanel | null;
}
/** A step in the format of Perfetto. */
export interface TraceFile { displayTimeUnit: string; traceEvents: Array<Record<string, any>> }

// Serve and Simulate, and answers side by side

/** One of the configurations that were judged. */
export interface ServeRow {
  plan: string; config: string; slice: string; engine: string; bound_by: string; formats: string; batch: ShownAmount;
  ttft: ShownAmount; tpot: ShownAmount; tokens: ShownAmount; cost: ShownAmount; chips: ShownAmount;
  hour: ShownAmount; meets: boolean; fields: Record<string, string>;
}
/** What the form's sliders stand at, and their stops. */
export interface ServeSizes {
  batch: Integer | null; max_batch: Integer | null; prompt: Integer; output: Integer; chips: Integer; chip: string;
  context: Integer; rate: number | null; caches: Array<string>;
}
export interface PlacedPoint { x: number; y: number }
/** A replica at its full load, which is shown apart from the fleet that serves a rate. */
export interface FullReplica { title: string; about: string; figures: Array<ShownFigure> }
/** The answer of the Serve tab; where nothing fits it is the sentence and the sizes. */
export interface ServePanel {
  feasible: boolean; meets: boolean; sentence: string; notes: Array<string>; configs: Array<ServeRow>;
  sizes: ServeSizes; plan?: string; config?: string; settings?: Record<string, string>; slice?: string;
  copy_slice?: string; engine?: string; engine_why?: string; violations?: Array<string>; formats?: string;
  bound_by?: string; advice?: string; error?: string; dearer?: string; better?: string; figures?: Array<ShownFigure>;
  replica?: FullReplica; searched?: Integer; point?: PlacedPoint; simulate?: Record<string, string> | null;
}
/** A prefill, a decode step or a whole request as a bar. */
export interface PhaseBar {
  name: string; title: string; about: string; total: ShownAmount; lower: ShownAmount; parts: Array<BarPart>;
  roofline?: ShownAmount; beside?: ShownAmount;
}
export interface PhaseBars { bars: Array<PhaseBar> }
/** Operations under roofs. */
export interface RooflinePanel {
  roofs: Array<DrawnRoof>; points: Array<DrawnPoint>; ridge?: ShownAmount; about?: string; chip?: string;
}
/** A configuration by what a user sees and what a chip gives. */
export interface FrontierSpot {
  x: number; y: number; name: string; group: string; about: string; role: string; chosen: boolean; meets: boolean;
  fields: Record<string, string>;
}
export interface FrontierPanel {
  points: Array<FrontierSpot>; x: ChartAxis; y: ChartAxis; frontier: Array<Array<number>>; rules: Array<ChartRule>;
  about: string;
}
/** A batch at which something changes. */
export interface BatchCrossing { text: string; number: ShownAmount; here: boolean; formula?: string }
export interface ServeBatchesPanel {
  series: Array<ChartLine>; x: ChartAxis; y: ChartAxis; rules: Array<ChartRule>; marks: Array<ChartMark>;
  crossings: Array<BatchCrossing>; about?: string;
}
/** What to ask of the fleet next. */
export interface NextSimulation { text: string; command: string; fields: Record<string, any> }
export interface FleetSizes { replicas: Integer; kv_tokens: Integer; rate: number; seconds: number }
export interface SimulatePanel {
  feasible: boolean; meets: boolean | null; holds: boolean; sentence: string; tone: string; bound_by: string;
  advice: string; requests: string; notes: Array<string>; capacity: string; figures: Array<ShownFigure>;
  next: NextSimulation | null; sizes: FleetSizes;
}
/** A fleet at the moments of its run. */
export interface FleetSamples {
  running: Array<number>; waiting: Array<number>; pages: Array<number>; busy: Array<number>; replicas: Array<number>;
  tokens: Array<number>;
}
export interface ReplicaSamples {
  index: Integer; pool: string; name: string; running: Array<number>; waiting: Array<number>; pages: Array<number>;
  tokens: Array<number>;
}
export interface RequestRates { arriving: Array<Array<number>>; ending: Array<Array<number>> }
export interface OverTimePanel {
  seconds: ShownAmount; moments: Array<number>; texts: Array<string>; fleet: FleetSamples;
  replicas: Array<ReplicaSamples>; arrivals: RequestRates; about: string; room: Integer;
}
export interface PercentileRow { name: string; cells: Array<ShownAmount>; about: string }
export interface PercentilesPanel {
  series: Array<ChartLine>; rules: Array<ChartRule>; x: ChartAxis; y: ChartAxis; columns: Array<string>;
  rows: Array<PercentileRow>;
}
export interface ReplicaShown { name: string; pool: string; batch: ShownAmount; busy: ShownAmount; tokens: ShownAmount }
export interface ReplicasPanel { columns: Array<string>; rows: Array<ReplicaShown> }
/** One of the answers that stand side by side. */
export interface ComparedSide {
  key: string; label: string; slice: string; software: string; chips: Integer; feasible: boolean; bound_by: string;
  problems: Array<string>; plan: string; fields: Record<string, any>;
}
export interface ComparedCell { number: ShownAmount; band: string; mark: string; text: string }
export interface ComparedRow { name: string; less: boolean; cells: Array<ComparedCell> }
export interface ComparedBar {
  key: string; label: string; total: ShownAmount; parts: Array<BarPart>; limit?: number | null;
}
export interface ComparedBars { bars: Array<ComparedBar>; scale: number; what?: string }
export interface ComparedSetting { name: string; cells: Array<string> }
export interface SidesPanel {
  kind: string; model: string; workload: string; winner: string; notes: Array<string>; sides: Array<ComparedSide>;
  rows: Array<ComparedRow>; time: ComparedBars; memory: ComparedBars; settings: Array<ComparedSetting>;
  sentences: Array<string>;
}
export interface SuggestedSlice { on: string; chip: string; why: string; chips: string }
export interface SuggestPanel { slices: Array<SuggestedSlice> }

// Rooflines, sharded products, collectives

export interface LetterStop { size: Integer; text: string }
/** A dim with its slider. */
export interface LetterSlider { name: string; size: Integer | null; text: string; stops: Array<LetterStop> }
/** What is wrong with an expression and where, and its dims. */
export interface NotationPanel { wrong: string; at: Array<Integer> | null; letters: Array<LetterSlider> }
export interface ResourceRow { name: string; formula: string; role: string; seconds: ShownAmount }
export interface ShownCrossover { variable: string; value: number; below: string; above: string; number: ShownAmount }
export interface OperationPanel {
  advice: string; expression: string; chip: string; chip_title: string; bound_by: string | null; sentence: string;
  notes: Array<string>; figures: Array<ShownFigure>; resources: Array<ResourceRow>; crossovers: Array<ShownCrossover>;
}
/** Time over one of the letters. */
export interface OperationCurve {
  letter: string; letters: Array<string>; series: Array<ChartLine>; x?: ChartAxis; y?: ChartAxis;
  rules?: Array<ChartRule>; marks?: Array<ChartMark>;
}
export interface MeshSide { name: string; size: Integer; role: string }
export interface ShardMesh { axes: Array<MeshSide>; chips: Integer; rows: Integer; places: Array<string> }
export interface ShardPanel {
  sentence: string; on: string; expression: string; figures: Array<ShownFigure>; bound_by: string | null;
  notes: Array<string>; mesh: ShardMesh;
}
export interface LaidArray {
  array: string; shape: string; bytes: ShownAmount; total: ShownAmount; replicas: ShownAmount;
}
export interface ShardMove {
  when: string; axes: Array<string>; array: string; result: string; collective: string; bytes: ShownAmount;
  sent: ShownAmount; seconds: ShownAmount; book: ShownAmount;
}
/** A side of a drawn array, cut by mesh axes. */
export interface DrawnSide {
  dim: string; axes: Array<string>; cuts: Integer; drawn: Integer; role: string; size: string;
}
export interface DrawnArray {
  text: string; name: string; rows: DrawnSide; cols: DrawnSide; others: Array<DrawnSide>; copied: Array<string>;
  copies: Integer; partial: Array<string>; summands: Integer; held: Array<Integer>; shape: string; bytes: ShownAmount;
}
/** A step of the animation. */
export interface ShardStage {
  kind: string; title: string; axes: Array<string>; role: string; arrays: Array<DrawnArray>; move?: Integer;
}
/** A legal way of running a product. */
export interface ShardWay {
  local: string; computes: boolean; bound_by: string | null; repeated_over: Array<string>; free_slices: Array<string>;
  lower: ShownAmount; upper: ShownAmount; sent: ShownAmount; flops: ShownAmount; read: ShownAmount;
  written: ShownAmount; times: Array<HeldPart>; moves: Array<ShardMove>; stages: Array<ShardStage>;
}
export interface ShardLine { einsum: string; case: Integer; arrays: Array<LaidArray>; ways: Array<ShardWay> }
export interface ShardPass { name: string; lines: Array<ShardLine> }
export interface PassesPanel { mesh: ShardMesh; passes: Array<ShardPass> }
/** A tier that a collective goes through. */
export interface PassedTier {
  tier: string; children: ShownAmount; link: ShownAmount; seconds: ShownAmount; into: ShownAmount; out: ShownAmount;
}
export interface CollectivePanel {
  bytes: number; figures: Array<ShownFigure>; kinds: Array<string>; notes: Array<string>; sentence: string;
  advice: string; regime: string; mesh: Record<string, Integer>; axes: Array<string>; tiers: Array<PassedTier>;
}
export interface CollectiveCurve {
  x: ChartAxis; y: ChartAxis; series: Array<ChartLine>; rules: Array<ChartRule>; marks: Array<ChartMark>;
}

// Chips and Models

export interface TableColumn { name: string; title: string; unit?: string }
export interface ChipRow {
  name: string; title: string; kind: string; released: string; network: string; largest: string;
  cells: Record<string, ShownAmount>;
}
export interface ChipsTable { columns: Array<TableColumn>; rows: Array<ChipRow> }
export interface ScatterPoint { x: number; y: number; name: string; group: string; role: string }
export interface ScatterPicture {
  title: string; about: string; x: ChartAxis; y: ChartAxis; points: Array<ScatterPoint>;
}
export interface ScatterPanel { pictures: Array<ScatterPicture> }
/** A source, a file, or another text with a name. */
export interface NamedText { name: string; text: string }
/** What another source says. */
export interface OtherValue { source: string; note: string; number: ShownAmount; source_text: string }
export interface ChipFactRow {
  path: string; source: string; number: ShownAmount; about: string; source_text: string; also: Array<OtherValue>;
}
export interface FactGroup { title: string; facts: Array<ChipFactRow> }
export interface ChipPart { part: string; count: ShownAmount; rate: ShownAmount }
export interface ChipPanel {
  name: string; title: string; kind: string; released: string; network: string; largest: string; price: string;
  sentence: string; figures: Array<ShownFigure>; parts: Array<ChipPart>; groups: Array<FactGroup>;
  sources: Array<NamedText>;
}
/** An axis of a torus. */
export interface SliceAxisRow {
  axis: string; size: Integer; wraps: boolean; out: ShownAmount; hops: ShownAmount; bisection: ShownAmount;
}
/** A tier of a network of switches. */
export interface SliceTierRow {
  tier: string; groups: Integer; children: Integer; child: ShownAmount; chip: ShownAmount; bisection: ShownAmount;
  switches: ShownAmount;
}
/** A slice; of one chip nothing but that there are no axes and tiers. */
export interface SlicePanel {
  slice: string; axes: Array<SliceAxisRow>; tiers: Array<SliceTierRow>; chip?: string; chips?: Integer;
  pods?: Integer; host_chips?: Integer; host_shape?: Array<Integer>; sentence?: string; figures?: Array<ShownFigure>;
  notes?: Array<string>;
}
export interface ChipBeside { name: string; title: string; kind: string; released: string }
/** A number, or a word that has none. */
export interface BesideNumber { value: number | null; text: string; why: string; unit?: string }
export interface BesideCell { number: BesideNumber; ratio: string; differs: boolean }
export interface BesideRow { title: string; cells: Array<BesideCell> }
export interface BesidePanel { chips: Array<ChipBeside>; rows: Array<BesideRow>; roofs: Array<DrawnRoof> }
export interface KnobStop { value: string; factor: number; text: string }
/** A number of a chip that can be changed. */
export interface KnobRow {
  name: string; title: string; value: string; factor: number; own: ShownAmount; now: ShownAmount;
  stops: Array<KnobStop>;
}
export interface KnobsPanel { chip: string; title: string; knobs: Array<KnobRow>; kept: Array<string> }
export interface PresetRow { name: string; family: string; moe: boolean; cells: Record<string, ShownAmount> }
export interface ModelsTable { columns: Array<TableColumn>; rows: Array<PresetRow> }
export interface StackedSum { total: ShownAmount; parts: Array<BarPart> }
export interface FormatBytes { format: string; bytes: ShownAmount }
export interface PolicyBytes { policy: string; bytes: ShownAmount }
export interface ExtraPart { part: string; count: ShownAmount }
export interface ModelPanel {
  name: string; advice: string; sequence: Integer; shape: string; sentence: string; figures: Array<ShownFigure>;
  parameters: StackedSum; flops: StackedSum; weights: Array<FormatBytes>; stored: Array<FormatBytes>;
  extra: Array<ExtraPart>; activations: Array<PolicyBytes>; notes: Array<string>;
}
export interface LinesOverLength {
  x: ChartAxis; y: ChartAxis; series: Array<ChartLine>; rules: Array<ChartRule>; marks?: Array<ChartMark>;
}
export interface LengthsPanel { meets: ShownAmount; rule: ShownAmount; cache: LinesOverLength; flops: LinesOverLength }
export interface ProgramPanel { program: string }
export interface ModelLine { name: string; parameters: ShownAmount; text: string; notes: Array<string> }
export interface DroppedConfig { name: string; text: string; in_address: boolean; characters: Integer }

// Reinforcement learning, derivations, the course

export interface RlWay {
  mode: string; stack: string; train: string; rollout: string; train_chips: Integer; rollout_chips: Integer;
  feasible: boolean; step: ShownAmount; rate: ShownAmount;
}
export interface RlAnswer {
  notes: Array<string>; ways: Array<RlWay>; feasible: boolean; sentence: string; figures: Array<ShownFigure>;
  plan?: string; about?: string; advice?: string;
}
export interface PhasesPanel { total: ShownAmount; parts: Array<BarPart> }
export interface WhyRow { name: string; number: ShownAmount; note: string }
/** A sum or a table that a number is put together from. */
export interface WhyStep {
  title: string; text: string; rows?: Array<WhyRow>; total?: ShownAmount | null; columns?: Array<string>;
  lines?: Array<Array<any>>;
}
export interface WhyFacts {
  id: string; title: string; sentence: string; number: ShownAmount; steps: Array<WhyStep>;
  compared: Record<string, any> | null; error: string; sources: Array<Record<string, string>>;
  docs: Record<string, string> | null; more: boolean;
}
export interface WhyLetter { letter: string; math: Array<any>; value: string; what: string; from: string }
export interface WhyFormula {
  id: string; formulas: Array<Record<string, any>>; letters: Array<WhyLetter>; crossovers: Array<string>;
  notes: Array<string>;
}
export interface LearnChapter {
  title: string; about: string; chapter: string; page: string; picture: string;
  problems: Array<Record<string, string>>;
}
export interface CoursePanel { chapters: Array<LearnChapter> }
export interface CrossoversPanel { id: string; crossovers: Array<string> }

// Forms and dialogs: what can be chosen, what is copied, exported and judged, a problem of the course

/** The blocks of a sheet, each with its `kind` (`blocks/sheet.py`). */
export interface SheetPanel { blocks: Array<Record<string, any>>; notes: Array<string> }
export interface StackWords { group: string; about: string }
export interface PresetChoice { name: string; family: string; parameters: string }
/** A chip with its slices, pairs of a number of chips and a topology; `node` chips are in a host, and of a network of
 * switches whole multiples of `unit` can be had (0: of a torus only those that are listed); `also` are parts of several racks. */
export interface ChipChoice {
  name: string; title: string; kind: string; node: Integer; unit: Integer; train: Array<Array<Integer | string>>;
  serve: Array<Array<Integer | string>>; also: Array<Integer>;
}
/** A flag of a command, as a form shows it. */
export interface FlagField {
  name: string; flag: string; group: string; place: boolean; switch: boolean; value: string; needed: boolean;
  type: string | Array<string>; description: string; examples?: Array<string>; default?: any;
  items?: Record<string, string>; enum?: Array<any>;
}
export interface ThemeColours { light: Record<string, string>; dark: Record<string, string> }
export interface CataloguePanel {
  version: string; docs: boolean; models: Array<string>; stacks: Array<string>; engines: Array<string>;
  dtypes: Array<string>; slices: Array<string>; stack_words: Record<string, StackWords>; presets: Array<PresetChoice>;
  chips: Array<ChipChoice>; fields: Record<string, Array<FlagField>>; colours: ThemeColours;
}
/** A file, with how it is used. */
export interface CopiedFile { name: string; text: string; use: string }
export interface TextsPanel { cli: string; python: string; toml: CopiedFile; file: NamedText | null }
export interface PlanFilePanel { name: string; text: string; use: string; file: NamedText | null }
export interface VerifyPanel { fields: Record<string, any>; cli: string }
/** A command of other software, read. */
export interface JudgedCommand {
  view: string; fields: Record<string, any>; software: string; version: string; notes: Array<string>;
  ignored: Array<string>; unplanned: Array<string>; unknown: Array<string>; plan: string;
  settings: Record<string, any>; headline: string; missing: Array<string>;
}
export interface SoftwareChoice { name: string; title: string; version: string }
export interface LauncherChoice { name: string; title: string }
export interface TargetsPanel {
  own: string; software: Array<SoftwareChoice>; launchers: Array<LauncherChoice>; loads: Array<any>;
}
export interface FilesPanel {
  target: string; version: string; launcher: string; expected: Array<string>; notes: Array<string>;
  files: Array<NamedText>; differences: Array<any>; bundle: string; cli: string;
}
/** A problem of the course, with what was answered. */
export interface ProblemPanel {
  problem: string; title: string; chapter: string; seed: Integer; ask: string; unit: string; tolerance: number;
  options: Array<string>; hints: Array<string>; hint_count: Integer; answered: string; right: boolean | null;
  told: string; answer: string; value: number | null; solution: Array<string>; check: string; page: string;
  again: string; next: string;
}

// Panels by view: every command has a sheet and its record, which is what `--json` prints

export interface CommandPanels { sheet?: SheetPanel; record?: any }
export interface TrainPanels extends CommandPanels {
  answer?: TrainAnswer; time?: TimePanel; memory?: MemoryPanel; mesh?: MeshPanel; sliders?: SlidersPanel;
  roofline?: RooflinePanel; timeline?: TimelinePanel; trace?: TraceFile; batches?: LinesPanel;
  best_batches?: BestBatchesPanel; scaling?: ScalingPanel; against?: AgainstPanel;
}
export interface ServePanels extends CommandPanels {
  answer?: ServePanel; time?: PhaseBars; memory?: MemoryPanel; roofline?: RooflinePanel; mesh?: MeshPanel;
  timeline?: TimelinePanel; frontier?: FrontierPanel; batches?: ServeBatchesPanel;
}
export interface SimulatePanels extends CommandPanels {
  answer?: SimulatePanel; over_time?: OverTimePanel; percentiles?: PercentilesPanel; replicas?: ReplicasPanel;
}
export interface RlPanels extends CommandPanels { answer?: RlAnswer; phases?: PhasesPanel }
export interface RooflinePanels extends CommandPanels {
  notation?: NotationPanel; answer?: OperationPanel; roof?: RooflinePanel; curve?: OperationCurve;
}
export interface ShardPanels extends CommandPanels {
  notation?: NotationPanel; answer?: ShardPanel; passes?: PassesPanel;
}
export interface CollectivePanels extends CommandPanels { answer?: CollectivePanel; curve?: CollectiveCurve }
export interface ChipsPanels extends CommandPanels {
  table?: ChipsTable; scatter?: ScatterPanel; chip?: ChipPanel; roof?: RooflinePanel; slice?: SlicePanel;
  beside?: BesidePanel; knobs?: KnobsPanel;
}
export interface ModelsPanels extends CommandPanels {
  table?: ModelsTable; model?: ModelPanel; lengths?: LengthsPanel; program?: ProgramPanel; line?: ModelLine;
  config?: DroppedConfig;
}
export interface ComparePanels extends CommandPanels { sides?: SidesPanel; suggest?: SuggestPanel }
export interface CataloguePanels { catalogue?: CataloguePanel }
export interface WhyPanels { facts?: WhyFacts; formula?: WhyFormula; crossovers?: CrossoversPanel }
export interface CopiedPanels { texts?: TextsPanel; plan?: PlanFilePanel; verify?: VerifyPanel }
export interface JudgePanels { read?: JudgedCommand }
export interface ExportPanels { targets?: TargetsPanel; files?: FilesPanel }
export interface LearnPanels { course?: CoursePanel; problem?: ProblemPanel }

export interface Views {
  train: TrainPanels; serve: ServePanels; simulate: SimulatePanels; rl: RlPanels; roofline: RooflinePanels;
  shard: ShardPanels; collective: CollectivePanels; chips: ChipsPanels; models: ModelsPanels; compare: ComparePanels;
  catalogue: CataloguePanels; why: WhyPanels; copied: CopiedPanels; judge: JudgePanels; export: ExportPanels;
  learn: LearnPanels;
}

export type Panels<V> = V extends keyof Views ? Views[V] : any;

