// What the page's modules use of htm-preact.js, for `tsc`.
export const html: (strings: TemplateStringsArray, ...values: any[]) => any;
export function render(drawn: any, into: Element): void;
export function useState<T = any>(initial?: T | (() => T)): [any, (next: any) => void];
export function useEffect(effect: () => any, inputs?: any[]): void;
export function useLayoutEffect(effect: () => any, inputs?: any[]): void;
export function useMemo<T>(made: () => T, inputs?: any[]): T;
export function useRef(initial?: any): { current: any };
export function useCallback<T>(called: T, inputs?: any[]): T;
export function useContext(context: any): any;
export function createContext(initial: any): any;
export function useErrorBoundary(heard?: (error: any) => void): [any, () => void];
