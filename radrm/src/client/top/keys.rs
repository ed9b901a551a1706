//! Keys of the node's view, and what they change. They are those of the list of runs.

use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::JobRow;

use crate::live::Key;

/// By what jobs are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// As the daemon lists them: those that run, then the queue in its order.
    #[default]
    Queue,
    Memory,
    Time,
    User,
    Job,
}

impl Sort {
    const ALL: [Sort; 5] = [Sort::Queue, Sort::Memory, Sort::Time, Sort::User, Sort::Job];

    /// The column's title; none for the order of the daemon.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Sort::Queue => "",
            Sort::Memory => "MEMORY",
            Sort::Time => "TIME",
            Sort::User => "USER",
            Sort::Job => "JOB",
        }
    }

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL.get(at + 1).copied().unwrap_or_default()
    }

    fn sort(self, rows: &mut [&JobRow]) {
        match self {
            Sort::Queue => {}
            Sort::Memory => rows.sort_by_key(|row| std::cmp::Reverse(memory(row))),
            Sort::Time => rows.sort_by_key(|row| std::cmp::Reverse(row.ran_ms)),
            Sort::User => rows.sort_by(|a, b| a.user.cmp(&b.user)),
            Sort::Job => rows.sort_by_key(|row| row.job),
        }
    }
}

/// Memory of a job as the list shows it.
pub(super) fn memory(row: &JobRow) -> u64 {
    let asked = row.asked.memory().or(row.need_upper).filter(|_| row.state.is_queued());
    row.suspended.or(row.reserved).or(asked).unwrap_or(row.used)
}

/// A page of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    /// GPUs, and jobs below.
    #[default]
    Jobs,
    /// Everything about the chosen job.
    Job,
    /// All GPUs, with what there is to say of them.
    Gpus,
    Help,
}

/// Request of a key, beside another picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    Nothing,
    /// News of the job that is shown.
    Look,
    Cancel(JobRef),
    Quit,
}

/// State of the view that the keys have made.
#[derive(Debug, Default)]
pub(super) struct Interface {
    pub(super) sort: Sort,
    /// The job that is chosen; none before a key chose one.
    pub(super) chosen: Option<u64>,
    pub(super) page: Page,
    /// First line of a page that is longer than the screen.
    pub(super) scroll: usize,
    /// Text that is searched for, and true while it is being typed.
    pub(super) filter: String,
    pub(super) typing: bool,
    pub(super) paused: bool,
    /// The job of which is asked whether to cancel it.
    pub(super) asks: Option<JobRef>,
    /// Outcome of the last cancel.
    pub(super) said: String,
}

/// A job as the question and the request name it: a task of an array by its index, as the array has the number of its first job.
fn named(row: &JobRow) -> JobRef {
    match &row.task {
        Some(task) => JobRef { job: task.array, index: Some(task.index) },
        None => row.job.into(),
    }
}

impl Interface {
    /// The jobs that are listed, in their order.
    pub(super) fn listed<'r>(&self, rows: &'r [JobRow]) -> Vec<&'r JobRow> {
        let words: Vec<String> = self.filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let matches = |row: &&JobRow| {
            let JobRow { job, user, name, state, why, .. } = row;
            let text = format!("{job} {user} {name} {state} {why}").to_lowercase();
            words.iter().all(|word| text.contains(word))
        };
        let mut found: Vec<&JobRow> = rows.iter().filter(matches).collect();
        self.sort.sort(&mut found);
        found
    }

    /// The job that is chosen, or else the first.
    pub(super) fn current<'r>(&self, rows: &'r [JobRow]) -> Option<&'r JobRow> {
        let listed = self.listed(rows);
        listed.iter().find(|row| Some(row.job) == self.chosen).or(listed.first()).copied()
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: Key, rows: &[JobRow]) -> Pressed {
        if self.typing {
            self.edit(key);
            return Pressed::Nothing;
        }
        if let Some(job) = self.asks.take() {
            return match key {
                Key::Letter('y' | 'Y') => Pressed::Cancel(job),
                Key::Quit => Pressed::Quit,
                _ => Pressed::Nothing,
            };
        }
        self.said.clear();
        match key {
            Key::Quit | Key::Letter('q') => return Pressed::Quit,
            Key::Escape if self.page != Page::Jobs => self.show(Page::Jobs),
            Key::Escape => self.filter.clear(),
            Key::Enter => {
                self.chosen = self.current(rows).map(|row| row.job);
                self.toggle(Page::Job);
                return Pressed::Look;
            }
            Key::Up | Key::Letter('k') => self.move_by(-1, rows),
            Key::Down | Key::Letter('j') => self.move_by(1, rows),
            Key::First => self.move_by(isize::MIN, rows),
            Key::Last => self.move_by(isize::MAX, rows),
            Key::Letter('s' | '>') => self.sort = self.sort.next(),
            Key::Letter('M') => self.sort = Sort::Memory,
            Key::Letter('T') => self.sort = Sort::Time,
            Key::Letter('U') => self.sort = Sort::User,
            Key::Letter('N') => self.sort = Sort::Job,
            Key::Letter('p' | ' ') => self.paused = !self.paused,
            Key::Letter('/' | '\\') => self.typing = true,
            Key::Letter('g') => self.toggle(Page::Gpus),
            Key::Letter('h' | '?') => self.toggle(Page::Help),
            Key::Letter('C' | 'K') => self.asks = self.current(rows).map(named),
            _ => {}
        }
        Pressed::Nothing
    }

    fn toggle(&mut self, page: Page) {
        self.show(if self.page == page { Page::Jobs } else { page });
    }

    fn show(&mut self, page: Page) {
        (self.page, self.scroll) = (page, 0);
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

    fn move_by(&mut self, way: isize, rows: &[JobRow]) {
        if self.page != Page::Jobs {
            self.scroll = self.scroll.saturating_add_signed(way);
            return;
        }
        let listed = self.listed(rows);
        let now = listed.iter().position(|row| Some(row.job) == self.chosen).unwrap_or(0);
        let next = now.saturating_add_signed(way).min(listed.len().saturating_sub(1));
        self.chosen = listed.get(next).map(|row| row.job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<JobRow> {
        let row = |job, user: &str, used, ran_ms| JobRow {
            job,
            user: user.into(),
            name: format!("train{job}").into(),
            used,
            ran_ms,
            ..JobRow::default()
        };
        vec![row(7, "bob", 5, 1), row(3, "alice", 50, 9), row(9, "alice", 1, 5)]
    }

    fn order(interface: &Interface) -> Vec<u64> {
        interface.listed(&rows()).iter().map(|row| row.job).collect()
    }

    fn press(interface: &mut Interface, bytes: &[u8]) -> Vec<Pressed> {
        let pressed = Key::of(bytes).into_iter().map(|key| interface.press(key, &rows()));
        pressed.filter(|pressed| *pressed != Pressed::Nothing).collect()
    }

    #[test]
    fn jobs_are_sorted_chosen_and_filtered_by_keys() {
        let mut interface = Interface::default();
        assert_eq!(order(&interface), [7, 3, 9], "as the daemon lists them");
        for (key, expected) in [(b"M", [3, 7, 9]), (b"T", [3, 9, 7]), (b"U", [3, 9, 7]), (b"N", [3, 7, 9])] {
            press(&mut interface, key);
            assert_eq!(order(&interface), expected, "{key:?}");
        }
        press(&mut interface, b"jj");
        assert_eq!(interface.current(&rows()).map(|row| row.job), Some(9));
        press(&mut interface, b"s");
        assert_eq!(order(&interface), [7, 3, 9]);
        press(&mut interface, b"/alice\r");
        assert_eq!(order(&interface), [3, 9]);
        press(&mut interface, b"\x1b");
        assert_eq!(press(&mut interface, b"\r"), [Pressed::Look]);
        assert_eq!((interface.page, interface.chosen), (Page::Job, Some(9)));
        press(&mut interface, b"jjk");
        assert_eq!((interface.scroll, interface.chosen), (1, Some(9)), "a page is scrolled");
        press(&mut interface, b"\x1b");
        assert_eq!((interface.page, interface.scroll), (Page::Jobs, 0));
        press(&mut interface, b"h");
        assert_eq!(interface.page, Page::Help);
        assert_eq!(press(&mut interface, b"q"), [Pressed::Quit]);
    }

    #[test]
    fn a_job_is_cancelled_only_after_a_yes() {
        let mut interface = Interface::default();
        for no in [&b"Cn"[..], b"C\x1b", b"C\r", b"K "] {
            assert_eq!(press(&mut interface, no), []);
            assert_eq!(interface.asks, None);
        }
        assert_eq!(press(&mut interface, b"jC"), []);
        assert_eq!(interface.asks, Some(3.into()), "the chosen one");
        assert_eq!(press(&mut interface, b"y"), [Pressed::Cancel(3.into())]);
        assert_eq!(press(&mut interface, b"y"), [], "once");
        assert_eq!(press(&mut interface, b"/Cy"), [], "letters of a search are no keys");
    }

    #[test]
    fn of_an_array_one_task_is_cancelled_and_not_all() {
        let task = Some(radrm_protocol::wire::TaskRow { array: 12, index: 0, at_once: None });
        let row = JobRow { job: 12, task, ..JobRow::default() };
        assert_eq!(named(&row), JobRef { job: 12, index: Some(0) });
        assert_eq!(named(&JobRow { job: 12, ..JobRow::default() }), JobRef::from(12));
    }
}
