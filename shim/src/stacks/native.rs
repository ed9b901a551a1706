//! Walking the native stack of the calling thread.

use core::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use super::modules::{NO_NUMBER, Table};
use super::registers::{RA, RBP, RSP, Registers};
use super::rule::{Compact, Rule};
use super::tables;

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

/// What tells an entry from a mixture of two, and from an empty one.
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

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// At the thread's beginning.
    Whole,
    /// There are frames further out, which are not known.
    Cut,
}

/// Walks from `registers` outwards; returns the number of frames and how it ended. `is_strange` is set if code was met
/// that lies in no module.
pub(super) fn walk(
    memory: &mut Memory,
    table: &Table,
    rules: &Rules,
    mut registers: Registers,
    frames: &mut [Word; DEPTH],
    is_strange: &mut bool,
) -> (usize, End) {
    let mut is_interrupted = true;
    for (count, place) in frames.iter_mut().enumerate() {
        let (Some(next), Some(stack)) = (registers.get(RA), registers.get(RSP)) else {
            return (count, End::Cut);
        };
        if next == 0 {
            return (count, End::Whole);
        }
        // The address behind a call may belong to the next function, or to none.
        let pc = if is_interrupted { next } else { next.wrapping_sub(1) };
        let (is_found, module, was_signal) = match rules.get(pc, table.version) {
            Some((rule, module)) => (rule.step(memory, &mut registers), module, false),
            None => find(memory, table, rules, &mut registers, pc),
        };
        *is_strange |= module == NO_NUMBER;
        *place = (pc & LOW48) | u64::from(module) << 48;
        if !is_found {
            return (count + 1, End::Cut);
        }
        is_interrupted = was_signal;
        if registers.get(RA).is_none() {
            return (count + 1, End::Whole);
        }
        // Frames further out lie further up; a signal may have had a stack of its own.
        if !was_signal && registers.get(RSP).is_none_or(|up| up <= stack) {
            return (count + 1, End::Cut);
        }
    }
    (DEPTH, End::Cut)
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

    #[inline(never)]
    fn deep(
        left: usize,
        memory: &mut Memory,
        table: &Table,
        rules: &Rules,
        frames: &mut [Word; DEPTH],
    ) -> (usize, End) {
        if left > 0 {
            let found = deep(left - 1, memory, table, rules, frames);
            return std::hint::black_box(found);
        }
        memory.clear();
        let mut is_strange = false;
        let found = walk(memory, table, rules, Registers::here(), frames, &mut is_strange);
        assert!(!is_strange, "all code of this program lies in files");
        found
    }

    #[test]
    fn a_thread_is_walked_to_its_beginning_with_and_without_the_cache() {
        let (mut memory, rules) = (memory(), rules());
        let table = table(&mut memory);
        let mut frames = [[0; DEPTH]; 2];
        let [first, second] = &mut frames;
        let [found, again] = [first, second].map(|frames| deep(40, &mut memory, &table, &rules, frames));
        assert_eq!((found.1, again), (End::Whole, found));
        assert!(found.0 > 42 && found.0 < 80, "{found:?}");
        // The same frames, but for the places in this function from which it was called.
        let same = frames[0].iter().zip(&frames[1]).filter(|(a, b)| a == b).count();
        assert!(same >= DEPTH - 2, "{same}");
    }

    /// A generator of numbers that a seed repeats.
    fn next(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed ^ *seed >> 29
    }

    #[test]
    fn ten_thousand_random_stacks_end_early_and_do_no_harm() {
        let (mut memory, rules) = (memory(), rules());
        let table = table(&mut memory);
        let code = (walk as *const ()).addr() as u64;
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
            memory.clear();
            let mut frames = [0; DEPTH];
            let (count, _) = walk(&mut memory, &table, &rules, registers, &mut frames, &mut false);
            assert!((1..=DEPTH).contains(&count), "{count}");
        }
    }
}
