//! Keys, and what they change: which run is chosen, how runs are sorted, what is searched for. Keys are those of htop
//! and nvitop where they have them.

use super::reading::Reading;

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    First,
    Last,
    Enter,
    Escape,
    Backspace,
    Quit,
    Letter(char),
}

impl Key {
    /// The keys in what a terminal sent.
    pub(crate) fn of(bytes: &[u8]) -> Vec<Key> {
        const SEQUENCES: [(&[u8], Key); 8] = [
            (b"\x1b[A", Key::Up),
            (b"\x1bOA", Key::Up),
            (b"\x1b[B", Key::Down),
            (b"\x1bOB", Key::Down),
            (b"\x1b[H", Key::First),
            (b"\x1b[F", Key::Last),
            (b"\x1b[1~", Key::First),
            (b"\x1b[4~", Key::Last),
        ];
        let mut keys = Vec::new();
        let mut rest = bytes;
        while let Some((first, after)) = rest.split_first() {
            if let Some((sequence, key)) = SEQUENCES.iter().find(|(sequence, _)| rest.starts_with(sequence)) {
                keys.push(*key);
                rest = rest.get(sequence.len()..).unwrap_or_default();
                continue;
            }
            rest = after;
            match first {
                // Another sequence: all of it means nothing.
                b'\x1b' if matches!(after.first(), Some(b'[' | b'O')) => {
                    let end = after.iter().skip(1).position(|byte| (0x40..0x7f).contains(byte));
                    rest = end.and_then(|end| after.get(end + 2..)).unwrap_or_default();
                }
                b'\x1b' => keys.push(Key::Escape),
                b'\r' | b'\n' => keys.push(Key::Enter),
                0x7f | 0x08 => keys.push(Key::Backspace),
                0x03 | 0x04 => keys.push(Key::Quit),
                0x20..0x7f => keys.push(Key::Letter(char::from(*first))),
                _ => {}
            }
        }
        keys
    }
}

/// By what runs are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Memory,
    Growth,
    Launches,
    Steps,
    Time,
    Run,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Memory, Sort::Growth, Sort::Launches, Sort::Steps, Sort::Time, Sort::Run];

    /// The column's title.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Sort::Memory => "HELD",
            Sort::Growth => "GROWTH",
            Sort::Launches => "LAUNCHES/S",
            Sort::Steps => "STEPS/S",
            Sort::Time => "TIME",
            Sort::Run => "RUN",
        }
    }

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL.get(at + 1).copied().unwrap_or_default()
    }

    /// Key by which a run is sorted, the highest first.
    fn value(self, reading: &Reading) -> f64 {
        match self {
            Sort::Memory => reading.held() as f64,
            Sort::Growth => reading.growth_bytes_per_second.unwrap_or(0.0),
            Sort::Launches => reading.launches_per_second.unwrap_or(0.0),
            Sort::Steps => reading.steps_per_second.unwrap_or(-1.0),
            Sort::Time => reading.seconds,
            Sort::Run => -f64::from(reading.run),
        }
    }
}

/// State of the view that the keys have made.
#[derive(Debug, Default)]
pub(super) struct Interface {
    pub(super) sort: Sort,
    /// The run that is chosen; none before a key chose one.
    pub(super) chosen: Option<u32>,
    /// One run in detail, instead of the list.
    pub(super) details: bool,
    pub(super) help: bool,
    /// First line of a page that is longer than the screen.
    pub(super) scroll: usize,
    /// The run of which is asked whether to end it, and the one that is to be ended.
    pub(super) asks: Option<u32>,
    pub(super) to_end: Option<u32>,
    /// Outcome of that.
    pub(super) said: String,
    /// Text that is searched for, and true while it is being typed.
    pub(super) filter: String,
    pub(super) typing: bool,
    /// One run was asked for on the command line: there is no list.
    only: bool,
    paused: bool,
    pub(super) over: bool,
}

impl Interface {
    /// `only`: one run was asked for.
    pub(super) fn new(only: bool) -> Self {
        Self { only, details: only, ..Self::default() }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused || self.over
    }

    /// The only run has ended; its last figures stay.
    pub(super) fn ended(&mut self) {
        self.over = true;
    }

    /// The runs that are listed, in their order.
    pub(super) fn listed<'r>(&self, readings: &'r [Reading]) -> Vec<&'r Reading> {
        let words: Vec<String> = self.filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let matches = |reading: &&Reading| {
            let text = format!("{} {} {}", reading.run, reading.user, reading.command).to_lowercase();
            words.iter().all(|word| text.contains(word))
        };
        let mut found: Vec<&Reading> = readings.iter().filter(matches).collect();
        found.sort_by(|a, b| self.sort.value(b).total_cmp(&self.sort.value(a)).then(a.run.cmp(&b.run)));
        found
    }

    /// The run that is chosen, or else the first.
    pub(super) fn current<'r>(&self, readings: &'r [Reading]) -> Option<&'r Reading> {
        let listed = self.listed(readings);
        listed.iter().find(|reading| Some(reading.run) == self.chosen).or(listed.first()).copied()
    }

    /// Takes a key; false if the view is over.
    pub(super) fn press(&mut self, key: Key, readings: &[Reading]) -> bool {
        if self.typing {
            self.edit(key);
            return true;
        }
        if let Some(run) = self.asks.take() {
            self.to_end = matches!(key, Key::Letter('y' | 'Y')).then_some(run);
            return key != Key::Quit;
        }
        self.said.clear();
        let page = (self.help, self.details);
        match key {
            Key::Quit | Key::Letter('q') => return false,
            Key::Escape if self.help => self.help = false,
            Key::Escape if self.details && !self.only => self.details = false,
            Key::Escape => self.filter.clear(),
            Key::Enter => {
                self.chosen = self.current(readings).map(|reading| reading.run);
                self.details = self.only || !self.details;
            }
            Key::Letter('K') => self.asks = self.current(readings).map(|reading| reading.run),
            Key::Up | Key::Letter('k') => self.move_by(-1, readings),
            Key::Down | Key::Letter('j') => self.move_by(1, readings),
            Key::First => self.move_by(isize::MIN, readings),
            Key::Last => self.move_by(isize::MAX, readings),
            Key::Letter('s' | '>') => self.sort = self.sort.next(),
            Key::Letter('M') => self.sort = Sort::Memory,
            Key::Letter('T') => self.sort = Sort::Time,
            Key::Letter('N') => self.sort = Sort::Run,
            Key::Letter('p' | ' ') => self.paused = !self.paused,
            Key::Letter('/' | '\\') => self.typing = true,
            Key::Letter('h' | '?') => self.help = !self.help,
            _ => {}
        }
        if page != (self.help, self.details) {
            self.scroll = 0;
        }
        true
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Letter(letter) if self.filter.len() < 60 => self.filter.push(letter),
            Key::Backspace => _ = self.filter.pop(),
            Key::Enter => self.typing = false,
            Key::Escape | Key::Quit => {
                self.typing = false;
                self.filter.clear();
            }
            _ => {}
        }
    }

    fn move_by(&mut self, way: isize, readings: &[Reading]) {
        if self.help || self.details {
            self.scroll = self.scroll.saturating_add_signed(way);
            return;
        }
        let listed = self.listed(readings);
        let now = listed.iter().position(|reading| Some(reading.run) == self.chosen).unwrap_or(0);
        let last = listed.len().saturating_sub(1);
        let next = now.saturating_add_signed(way).min(last);
        self.chosen = listed.get(next).map(|reading| reading.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Vec<Reading> {
        let gpu = |held| super::super::reading::GpuReading { held_bytes: held, ..Default::default() };
        let run = |run, held, command: &str, seconds| Reading {
            run,
            command: command.into(),
            seconds,
            gpus: vec![gpu(held)],
            ..Reading::default()
        };
        vec![run(10, 5, "train a", 1.0), run(20, 50, "train b", 9.0), run(30, 1, "infer", 5.0)]
    }

    fn order(interface: &Interface) -> Vec<u32> {
        interface.listed(&runs()).iter().map(|reading| reading.run).collect()
    }

    fn press(interface: &mut Interface, bytes: &[u8]) -> bool {
        Key::of(bytes).into_iter().all(|key| interface.press(key, &runs()))
    }

    #[test]
    fn keys_are_told_from_what_a_terminal_sends() {
        assert_eq!(Key::of(b"\x1b[Aj\x1b[5~q"), [Key::Up, Key::Letter('j'), Key::Letter('q')]);
        assert_eq!(Key::of(b"\x1b"), [Key::Escape]);
        assert_eq!(Key::of(b"\x1b[1;5C\r\x7f\x03"), [Key::Enter, Key::Backspace, Key::Quit]);
        assert_eq!(Key::of(b"\x1b[\xc3\xa9"), []);
    }

    #[test]
    fn runs_are_sorted_chosen_and_filtered_by_keys() {
        let mut interface = Interface::default();
        assert_eq!(order(&interface), [20, 10, 30]);
        press(&mut interface, b"jj");
        assert_eq!(interface.current(&runs()).map(|run| run.run), Some(30));
        press(&mut interface, b"T");
        assert_eq!(order(&interface), [20, 30, 10]);
        assert_eq!(interface.current(&runs()).map(|run| run.run), Some(30), "the choice stays with its run");
        press(&mut interface, b"/train\r");
        assert_eq!(order(&interface), [20, 10]);
        assert_eq!(interface.current(&runs()).map(|run| run.run), Some(20));
        press(&mut interface, b"\x1b[F");
        assert_eq!(interface.current(&runs()).map(|run| run.run), Some(10));
        press(&mut interface, b"\r");
        assert!(interface.details);
        press(&mut interface, b"\x1b");
        press(&mut interface, b"\x1b");
        assert!(!interface.details && interface.filter.is_empty());
        assert!(!press(&mut interface, b"q"));
    }

    #[test]
    fn a_run_is_ended_only_after_a_yes() {
        let mut interface = Interface::default();
        for no in [&b"Kn"[..], b"K\x1b", b"K\r"] {
            press(&mut interface, no);
            assert_eq!((interface.asks, interface.to_end), (None, None));
        }
        press(&mut interface, b"jK");
        assert_eq!(interface.asks, Some(10), "the chosen one");
        press(&mut interface, b"y");
        assert_eq!(interface.to_end.take(), Some(10));
        press(&mut interface, b"y");
        assert_eq!(interface.to_end, None);
    }

    #[test]
    fn details_are_scrolled_and_the_choice_stays() {
        let mut interface = Interface::default();
        press(&mut interface, b"j\rjjk");
        assert_eq!((interface.scroll, interface.chosen), (1, Some(10)));
        press(&mut interface, b"\x1b");
        assert_eq!(interface.scroll, 0);
    }

    #[test]
    fn letters_of_a_search_are_no_keys() {
        let mut interface = Interface::default();
        assert!(press(&mut interface, b"/qjs"));
        assert_eq!((interface.filter.as_str(), interface.sort), ("qjs", Sort::Memory));
        press(&mut interface, b"\x7f\x7f\x7f");
        assert_eq!(order(&interface).len(), 3);
    }
}
