//! Walking the native stack of the calling thread.

use core::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use super::modules::{NO_NUMBER, Table};
use super::registers::{RA, RBP, RSP, Registers};
use super::rule::{Compact, Rule};
use super::tables;
use super::trace::{Found, Trace, mixed};

/// Frames that are followed.
pub(super) const DEPTH: usize = 128;
/// Places whose rules are remembered.
const CACHED: usize = 8192;
const LOW48: u64 = (1 << 48) - 1;

/// Rules by place. A thread may read an entry while another writes it: the first word is the place together with a sum
/// of the others, so that a mixture is taken for another place.
pub(super) struct Rules {
    entries: [[AtomicU64; 3]; CACHED],
}

impl Rules {
    fn entry(&self, pc: u64) -> Option<&[AtomicU64; 3]> {
        let spread = pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        self.entries.get(spread as usize % CACHED)
    }

    /// Rule and module of a place, if they are known under this version of the modules.
    #[inline]
    fn get(&self, pc: u64, version: u64) -> Option<(Compact, u16)> {
        let [key, first, saved] = self.entry(pc)?;
        let (first, saved) = (first.load(Ordering::Relaxed), saved.load(Ordering::Relaxed));
        if key.load(Ordering::Relaxed) != seal(pc, version, [first, saved]) {
            return None;
        }
        Some((Compact::unpack([first, saved]), (first >> 48) as u16))
    }

    fn put(&self, pc: u64, version: u64, rule: Compact, module: u16) {
        let Some([key, first, saved]) = self.entry(pc) else { return };
        let [low, high] = rule.pack();
        let low = low | u64::from(module) << 48;
        key.store(seal(pc, version, [low, high]), Ordering::Relaxed);
        first.store(low, Ordering::Relaxed);
        saved.store(high, Ordering::Relaxed);
    }
}

/// Seal of an entry: tells it from a mixture of two, and from an empty one.
fn seal(pc: u64, version: u64, [first, saved]: [u64; 2]) -> u64 {
    let place = (pc ^ version.rotate_left(48)).wrapping_add(1);
    place
        ^ first.wrapping_mul(0xff51_afd7_ed55_8ccd)
        ^ saved.wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(32)
}

/// A frame as it is walked: module in the upper 16 bits, address below.
pub(super) type Word = u64;

/// The address of a frame's word.
pub(super) fn address(word: Word) -> u64 {
    word & LOW48
}

/// The module's number in a frame's word.
pub(super) fn module(word: Word) -> u16 {
    (word >> 48) as u16
}

/// End of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// At the thread's beginning.
    Whole,
    /// There are frames further out, which are not known.
    Cut,
}

/// State of a walk: all that its rest depends on, but for memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    registers: Registers,
    /// The frame did not call, it was interrupted.
    is_interrupted: bool,
}

/// A frame with the state in which the walk came to it.
#[derive(Clone, Copy)]
pub(super) struct Step {
    state: State,
    pub(super) word: Word,
    /// It, or one further out, lies in no module.
    is_strange: bool,
}

impl Found for Step {
    fn join(&mut self, outer: Option<&Self>) {
        self.is_strange |= outer.is_some_and(|outer| outer.is_strange);
    }

    fn mix(&self, outer: u64) -> u64 {
        mixed(outer, self.word)
    }
}

/// The native frames of a stack.
pub(super) struct Walk {
    trace: Trace<Step, DEPTH>,
    is_cut: bool,
}

impl Walk {
    /// Forgets the last walk.
    pub(super) fn clear(&mut self) {
        self.trace.clear();
    }

    /// Compares the last walk with memory, before anything else of the stack is read.
    pub(super) fn compare(&mut self, memory: &Memory) {
        self.trace.compare(memory);
    }

    /// Walks from `registers` outwards; returns whether code was met that lies in no module.
    pub(super) fn walk(
        &mut self,
        memory: &mut Memory,
        table: &Table,
        rules: &Rules,
        registers: Registers,
    ) -> bool {
        memory.begin_log();
        let (end, is_met) = self.follow(memory, table, rules, State { registers, is_interrupted: true });
        // A known rest ends as it ended.
        let end = if is_met { self.end() } else { end };
        self.is_cut = end == End::Cut;
        let is_whole = is_met || self.trace.fresh() < DEPTH;
        self.trace.finish(memory, is_met, is_whole, end as u64 + 1);
        self.trace.frames().last().is_some_and(|innermost| innermost.is_strange)
    }

    /// Walks to the end, or to a frame from which on the last walk holds (true).
    fn follow(
        &mut self,
        memory: &mut Memory,
        table: &Table,
        rules: &Rules,
        State { mut registers, mut is_interrupted }: State,
    ) -> (End, bool) {
        loop {
            let (Some(next), Some(stack)) = (registers.get(RA), registers.get(RSP)) else {
                return (End::Cut, false);
            };
            if next == 0 {
                return (End::Whole, false);
            }
            let state = State { registers, is_interrupted };
            // Frames further out lie further up.
            while let Some(known) = self.trace.innermost() {
                if known.state == state && self.trace.fits() {
                    return (End::Whole, true);
                }
                if known.state.registers.get(RSP).is_some_and(|known| known > stack) {
                    break;
                }
                self.trace.drop_innermost();
            }
            // The address behind a call may belong to the next function, or to none.
            let pc = if is_interrupted { next } else { next.wrapping_sub(1) };
            let (word, is_strange) = (pc & LOW48, false);
            if !self.trace.push(memory, Step { state, word, is_strange }) {
                return (End::Cut, false);
            }
            let (is_found, module, was_signal) = match rules.get(pc, table.version) {
                Some((rule, module)) => (rule.step(memory, &mut registers), module, false),
                None => find(memory, table, rules, &mut registers, pc),
            };
            if let Some(step) = self.trace.latest() {
                step.word |= u64::from(module) << 48;
                step.is_strange = module == NO_NUMBER;
            }
            if !is_found {
                return (End::Cut, false);
            }
            is_interrupted = was_signal;
            if registers.get(RA).is_none() {
                return (End::Whole, false);
            }
            // A signal may have had a stack of its own.
            if !was_signal && registers.get(RSP).is_none_or(|up| up <= stack) {
                return (End::Cut, false);
            }
        }
    }

    /// End of the last walk.
    pub(super) fn end(&self) -> End {
        if self.is_cut { End::Cut } else { End::Whole }
    }

    /// Its frames, outermost first.
    pub(super) fn frames(&self) -> &[Step] {
        self.trace.frames()
    }

    /// Hash of it but for its `left` innermost frames.
    pub(super) fn hash(&self, left: usize) -> u64 {
        self.trace.hash(left, self.end() as u64 + 1)
    }
}

/// Finds the rule of a place that is not remembered, remembers it, and makes registers those of the caller. False: there
/// is none, or it cannot be found.
#[cold]
fn find(
    memory: &mut Memory,
    table: &Table,
    rules: &Rules,
    registers: &mut Registers,
    pc: u64,
) -> (bool, u16, bool) {
    let module = table.find(pc);
    let rule = module.filter(|module| module.header != 0).and_then(|m| tables::rule(memory, m.header, pc));
    let number = module.map_or(NO_NUMBER, |module| module.number);
    if let Some(compact) = rule.as_ref().and_then(Rule::compact) {
        rules.put(pc, table.version, compact, number);
    }
    let is_signal = rule.as_ref().is_some_and(|rule| rule.is_signal);
    let caller = match rule {
        Some(rule) => rule.apply(memory, registers),
        None => by_frame_pointer(memory, table, registers),
    };
    if let Some(caller) = caller {
        *registers = caller;
    }
    (caller.is_some(), number, is_signal)
}

/// The caller by the frame pointer, where that is sound: it leads up the stack, to a return address in known code.
fn by_frame_pointer(memory: &mut Memory, table: &Table, registers: &Registers) -> Option<Registers> {
    let (frame, stack) = (registers.get(RBP)?, registers.get(RSP)?);
    if frame < stack || !frame.is_multiple_of(8) {
        return None;
    }
    let caller = Rule::FRAME_POINTER.apply(memory, registers)?;
    let is_code = caller.get(RA).is_some_and(|pc| table.find(pc.wrapping_sub(1)).is_some());
    is_code.then_some(caller)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::stacks::modules::tests::table;

    fn memory() -> Box<Memory> {
        // SAFETY: all zeros is a memory without pages.
        let mut memory: Box<Memory> = unsafe { Box::new_zeroed().assume_init() };
        memory.clear();
        memory
    }

    fn rules() -> Box<Rules> {
        // SAFETY: all zeros is a cache that knows no place.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn walk() -> Box<Walk> {
        // SAFETY: all zeros is a walk without frames.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// Begins a stack, compares, and walks.
    fn walked(
        walk: &mut Walk,
        memory: &mut Memory,
        table: &Table,
        rules: &Rules,
        registers: Registers,
    ) -> bool {
        // SAFETY: `getpid` cannot fail.
        memory.begin(unsafe { libc::getpid() }, registers.get(RSP).unwrap_or(0));
        walk.compare(memory);
        walk.walk(memory, table, rules, registers)
    }

    fn words(walk: &Walk) -> Vec<Word> {
        walk.frames().iter().map(|step| step.word).collect()
    }

    #[inline(never)]
    fn deep(left: usize, work: &mut dyn FnMut(Registers)) {
        // Differs in every frame, and from call to call.
        let mut own = [left; 20];
        std::hint::black_box(&mut own);
        if left > 0 {
            deep(left - 1, work);
        } else {
            work(Registers::here());
        }
        std::hint::black_box(&own);
    }

    #[test]
    fn a_thread_is_walked_to_its_beginning_with_and_without_the_cache() {
        let (mut memory, rules, mut walk) = (memory(), rules(), walk());
        let table = table(&mut memory);
        let mut found = Vec::new();
        deep(40, &mut |registers| {
            for _ in 0..2 {
                walk.clear();
                assert!(!walked(&mut walk, &mut memory, &table, &rules, registers), "all code lies in files");
                found.push((words(&walk), walk.end(), walk.hash(0)));
            }
        });
        assert_eq!((found[0].1, &found[0]), (End::Whole, &found[1]));
        assert!(found[0].0.len() > 42 && found[0].0.len() < 80, "{}", found[0].0.len());
    }

    #[test]
    fn a_walk_that_continues_from_the_last_one_finds_what_a_new_one_finds() {
        let (mut memory, rules, mut walk, mut plain) = (memory(), rules(), walk(), walk());
        let mut other = self::memory();
        let table = table(&mut memory);
        let (mut seed, mut continued) = (11, 0);
        for _ in 0..300 {
            deep(next(&mut seed) as usize % 40, &mut |_| {
                for _ in 0..3 {
                    deep(next(&mut seed) as usize % 40, &mut |registers| {
                        walked(&mut walk, &mut memory, &table, &rules, registers);
                        continued += usize::from(walk.trace.fresh() < walk.frames().len());
                        plain.clear();
                        walked(&mut plain, &mut other, &table, &rules, registers);
                        assert_eq!(words(&walk), words(&plain));
                        assert_eq!((walk.end(), walk.hash(2)), (plain.end(), plain.hash(2)));
                    });
                }
            });
        }
        assert!(continued > 800, "{continued} of 900");
    }

    /// A generator of numbers that a seed repeats.
    fn next(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed ^ *seed >> 29
    }

    #[test]
    fn ten_thousand_random_stacks_end_early_and_do_no_harm() {
        let (mut memory, rules, mut walk, mut plain) = (memory(), rules(), walk(), walk());
        let mut other = self::memory();
        let table = table(&mut memory);
        let code = (find as *const ()).addr() as u64;
        let mut stack = vec![0u64; 2048];
        let at = stack.as_ptr().addr() as u64;
        let mut seed = 7;
        for _ in 0..10_000 {
            for word in &mut stack {
                let number = next(&mut seed);
                *word = match number % 6 {
                    0 => code.wrapping_add(number >> 44),
                    1 => at + (number >> 50),
                    2 => table.start_of(number as usize >> 8).wrapping_add(number >> 40 & 0xf_ffff),
                    3 => number % 4096,
                    _ => number,
                };
            }
            let mut registers = Registers::NONE;
            for register in 0..17 {
                let value = if next(&mut seed).is_multiple_of(2) {
                    stack[next(&mut seed) as usize % 2048]
                } else {
                    next(&mut seed)
                };
                registers.set(register, Some(value));
            }
            registers.set(RSP, Some(at + next(&mut seed) % 8192));
            registers.set(RA, Some(code.wrapping_add(next(&mut seed) % (1 << 16))));
            walked(&mut walk, &mut memory, &table, &rules, registers);
            assert!((1..=DEPTH).contains(&walk.frames().len()), "{}", walk.frames().len());
            // The same place once more, with some of its words changed: what was remembered changes nothing.
            for _ in 0..next(&mut seed) % 3 {
                stack[next(&mut seed) as usize % 2048] = next(&mut seed);
            }
            walked(&mut walk, &mut memory, &table, &rules, registers);
            plain.clear();
            walked(&mut plain, &mut other, &table, &rules, registers);
            assert_eq!((words(&walk), walk.end()), (words(&plain), plain.end()));
        }
    }
}
