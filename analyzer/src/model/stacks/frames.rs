//! Names of frames, and the order of native and interpreted ones.

use super::fold;
use crate::model::names;
use radrm_profile::model::{Site, StackFrame, Stacks};
use std::fmt;

/// Kind of code that a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A function of an interpreter.
    Interpreted,
    /// Native code.
    Native,
    /// No frame: a remark in the place of one.
    Note,
}

/// A frame with its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameLabel {
    /// Kind of its code.
    pub origin: Origin,
    /// Function, or remark in square brackets.
    pub function: String,
    /// Path of its file, if it is known.
    pub file: Option<String>,
    /// Line in the file.
    pub line: Option<u32>,
    /// True if its code is part of an installed package, whatever the path of its file.
    /// The file of compiled code is the one that it was compiled from, often on another machine.
    pub is_installed: bool,
}

/// Folders that packages are installed to.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// Returns true if a file belongs to an installed package or to Python itself.
pub(crate) fn is_installed(path: &str) -> bool {
    PACKAGES.iter().chain(&["/lib/python3"]).any(|part| path.contains(part))
}

impl FrameLabel {
    /// A remark in the place of a frame.
    pub(crate) fn note(text: impl Into<String>) -> Self {
        Self { origin: Origin::Note, function: text.into(), file: None, line: None, is_installed: false }
    }

    /// Returns true for the root of a thread of the backward pass.
    pub(super) fn is_backward(&self) -> bool {
        self.origin == Origin::Note && self.function == BACKWARD
    }

    /// Returns true for code of the program, and false for installed code.
    pub(super) fn is_own_code(&self) -> bool {
        let Some(file) = &self.file else { return false };
        self.origin != Origin::Note
            && !self.is_installed
            && !is_installed(file)
            && !file.starts_with("/usr/include/")
            && !file.starts_with('<')
    }

    /// The file as it is shown: what is installed by its package, other files by their names.
    pub fn short_file(&self) -> Option<&str> {
        let file = self.file.as_deref()?;
        let installed = PACKAGES.iter().find_map(|part| {
            let at = file.rfind(part)?;
            file.get(at + part.len()..)
        });
        installed.or_else(|| file.rsplit('/').next())
    }
}

/// `function (file.py:line)`; without a line or file as much as is known.
impl fmt::Display for FrameLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        match (self.short_file(), self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            (Some(file), None) => write!(f, " ({file})"),
            (None, _) => Ok(()),
        }
    }
}

/// Root of stacks of PyTorch's own threads for the backward pass: they run no Python, and which thread waits for them is not
/// part of their stacks.
const BACKWARD: &str = "[backward pass: a thread of PyTorch]";

/// A native frame whose names are known, before anything is left out.
struct Native {
    labels: Vec<FrameLabel>,
    /// It runs a function of an interpreter.
    is_evaluation: bool,
    /// It is the main function of a thread for the backward pass.
    is_backward: bool,
    is_folded: bool,
}

/// The frames of a site, innermost first. Unless `all_frames`, those that say nothing of the program are left out, as long
/// as any others are there.
pub(super) fn labels(stacks: &Stacks, site: &Site, all_frames: bool) -> Vec<FrameLabel> {
    if site.frames.is_empty() {
        return vec![FrameLabel::note("[other stacks]")];
    }
    let is_code = |frame: &StackFrame| matches!(frame, StackFrame::Code { .. });
    // Interpreted frames come behind all native ones; what ends them is of their sort.
    let begin = site.frames.iter().position(is_code).unwrap_or(site.frames.len());
    let (native_frames, code_frames) = site.frames.split_at(begin);
    let native: Vec<Native> = native_frames.iter().map(|frame| native(stacks, frame)).collect();
    let groups = groups(stacks, code_frames, all_frames);
    let is_backward = code_frames.is_empty() && native.iter().any(|frame| frame.is_backward);
    let evaluations = native.iter().filter(|frame| frame.is_evaluation).count();
    let has_code = !groups.is_empty();
    let kept = |frame: &Native| all_frames || !frame.is_folded;
    let mut labels = Vec::new();
    if evaluations == groups.len() {
        let mut groups = groups.into_iter();
        for frame in native {
            if frame.is_evaluation
                && let Some(group) = groups.next()
            {
                labels.extend(group);
            } else if kept(&frame) {
                labels.extend(frame.labels);
            }
        }
    } else {
        // Which native frame ran which function is not known: what was called last stands inside.
        let inner = native.iter().position(|frame| frame.is_evaluation).unwrap_or(if has_code {
            0
        } else {
            native.len()
        });
        labels.extend(native.into_iter().take(inner).filter(kept).flat_map(|frame| frame.labels));
        labels.extend(groups.into_iter().flatten());
    }
    if labels.is_empty() && !all_frames {
        return self::labels(stacks, site, true);
    }
    if is_backward {
        labels.push(FrameLabel::note(BACKWARD));
    }
    labels
}

/// Interpreted frames, innermost first, in groups that one native frame ran. A group of which nothing is shown is empty.
fn groups(stacks: &Stacks, frames: &[StackFrame], all_frames: bool) -> Vec<Vec<FrameLabel>> {
    let mut groups = Vec::new();
    let mut group = Vec::new();
    for frame in frames {
        let StackFrame::Code { code, line, is_entry } = *frame else {
            group.push(FrameLabel::note("[outer Python frames not known]"));
            continue;
        };
        let known = stacks.codes.get(code as usize).filter(|code| !code.name.is_empty());
        if all_frames || known.is_none_or(|code| !fold::is_own_python(&code.file)) {
            group.push(FrameLabel {
                origin: Origin::Interpreted,
                function: known.map_or_else(|| "[unknown function]".to_owned(), |code| code.name.clone()),
                file: known.map(|code| code.file.clone()),
                line: (line > 0).then_some(line),
                is_installed: known.is_some_and(|code| is_installed(&code.file)),
            });
        }
        if is_entry {
            groups.push(std::mem::take(&mut group));
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

fn native(stacks: &Stacks, frame: &StackFrame) -> Native {
    let plain = |label: FrameLabel, is_folded| Native {
        labels: vec![label],
        is_evaluation: false,
        is_backward: false,
        is_folded,
    };
    let (module, offset) = match *frame {
        StackFrame::Native { module, offset } => (module, offset),
        StackFrame::Unmapped(_) => return plain(FrameLabel::note("[code made at run time]"), false),
        StackFrame::Cut | StackFrame::Code { .. } => {
            return plain(FrameLabel::note("[outer frames not known]"), false);
        }
    };
    let path = stacks.modules.get(module as usize).map_or("", |module| module.path.as_str());
    let is_silent = fold::is_folded_library(path) || fold::is_interpreter(path);
    let Some(symbols) = stacks.symbols.get(&(module, offset)) else {
        let name = path.rsplit('/').next().unwrap_or_default();
        let name = if name.is_empty() { "unknown" } else { name };
        let label = FrameLabel {
            origin: Origin::Native,
            function: format!("[{name}+{offset:#x}]"),
            file: None,
            line: None,
            is_installed: is_installed(path),
        };
        return plain(label, is_silent || fold::is_c_library(path));
    };
    let is_evaluation = fold::is_interpreter(path)
        && symbols.iter().any(|symbol| symbol.function.starts_with("_PyEval_EvalFrameDefault"));
    let labels: Vec<FrameLabel> = symbols
        .iter()
        .map(|symbol| FrameLabel {
            origin: Origin::Native,
            function: names::qualified(&symbol.function),
            file: symbol.file.clone(),
            line: symbol.line,
            is_installed: is_installed(path),
        })
        .collect();
    let is_folded = is_silent || labels.iter().all(|label| fold::is_folded_function(&label.function));
    let is_backward = labels.iter().any(|label| fold::is_backward(&label.function));
    Native { labels, is_evaluation, is_backward, is_folded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::site_of;
    use radrm_profile::model::{StackCode, StackModule, Symbol};

    fn stacks() -> Stacks {
        let module = |path: &str| StackModule { path: path.into(), build_id: Vec::new() };
        let code = |name: &str| StackCode { file: "/home/u/train.py".into(), name: name.into() };
        let mut stacks = Stacks {
            modules: vec![
                module("/usr/bin/python3.11"),
                module("/x/libmodel.so"),
                module("/x/libcudart.so.12"),
            ],
            codes: vec![code("<module>"), code("step"), code("make")],
            ..Stacks::default()
        };
        for (module, offset, function) in [
            (0, 1, "_PyEval_EvalFrameDefault"),
            (0, 2, "cfunction_call"),
            (1, 3, "_ZN5model5buildEi"),
            (2, 4, "cudaMalloc"),
            (0, 5, "_start"),
        ] {
            let symbol = Symbol { function: function.into(), ..Symbol::default() };
            stacks.symbols.insert((module, offset), vec![symbol]);
        }
        stacks
    }

    fn shown(frames: Vec<StackFrame>, all: bool) -> Vec<String> {
        let site = Site { frames, ..Site::default() };
        labels(&stacks(), &site, all).iter().map(ToString::to_string).collect()
    }

    const fn at(module: u32, offset: u64) -> StackFrame {
        StackFrame::Native { module, offset }
    }

    const fn code(code: u32, is_entry: bool) -> StackFrame {
        StackFrame::Code { code, line: 7 + code, is_entry }
    }

    #[test]
    fn interpreted_frames_stand_where_their_native_frame_runs_them() {
        let native = [at(2, 4), at(1, 3), at(0, 1), at(0, 2), at(1, 3), at(0, 1), at(0, 5)];
        let frames = [&native[..], &[code(2, true), code(1, false), code(0, true)]].concat();
        assert_eq!(
            shown(frames.clone(), false),
            [
                "model::build",
                "make (train.py:9)",
                "model::build",
                "step (train.py:8)",
                "<module> (train.py:7)"
            ]
        );
        let all = shown(frames, true);
        assert_eq!(all.first().map(String::as_str), Some("cudaMalloc"));
        assert_eq!(all.last().map(String::as_str), Some("_start"));
    }

    #[test]
    fn without_the_interpreters_frames_its_functions_stand_outside() {
        let frames = vec![at(2, 4), at(1, 3), at(9, 9), code(2, true), code(0, true)];
        assert_eq!(shown(frames, false), ["make (train.py:9)", "<module> (train.py:7)"]);
        let frames = vec![at(2, 4), at(1, 3), at(0, 1), code(2, true), code(0, true)];
        assert_eq!(shown(frames, false), ["model::build", "make (train.py:9)", "<module> (train.py:7)"]);
    }

    #[test]
    fn a_stack_of_which_nothing_would_be_left_is_shown_whole() {
        assert_eq!(shown(vec![at(2, 4), at(0, 5)], false), ["cudaMalloc", "_start"]);
        assert_eq!(shown(Vec::new(), false), ["[other stacks]"]);
        assert_eq!(
            shown(vec![at(1, 0x10), StackFrame::Cut], false),
            ["[libmodel.so+0x10]", "[outer frames not known]"]
        );
    }

    /// The mark stands outside the functions whose callers are not known, and inside what began the interpreter.
    #[test]
    fn python_frames_that_are_not_recorded_leave_a_mark() {
        let native = [at(2, 4), at(1, 3), at(0, 1), at(0, 5)];
        let frames = [&native[..], &[code(2, false), code(1, false), StackFrame::Cut]].concat();
        let marked = ["make (train.py:9)", "step (train.py:8)", "[outer Python frames not known]"];
        let few = shown(frames.clone(), false);
        assert_eq!(few[1..], marked, "{few:?}");
        let all = shown(frames, true);
        assert_eq!(
            (&all[2..5], all.last().map(String::as_str)),
            (&marked.map(String::from)[..], Some("_start"))
        );
        let own = vec![at(2, 4), StackFrame::Cut, code(2, true)];
        assert!(!shown(own, true).contains(&marked[2].to_owned()), "native frames have a mark of their own");
    }

    #[test]
    fn threads_of_the_backward_pass_are_under_a_root_of_their_own() {
        let mut stacks = stacks();
        for (offset, function) in [
            (20, "_ZN5torch8autograd9generated20ConvolutionBackward05applyE"),
            (21, "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEE"),
            (22, "_ZN5torch8autograd6Engine11thread_mainERKSt10shared_ptrINS0_9GraphTaskEE"),
        ] {
            let symbol = Symbol { function: function.into(), ..Symbol::default() };
            stacks.symbols.insert((1, offset), vec![symbol]);
        }
        let shown = |frames: &[StackFrame]| {
            let site = Site { frames: frames.to_vec(), ..Site::default() };
            labels(&stacks, &site, false).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let native = [at(2, 4), at(1, 20), at(1, 21), at(1, 22)];
        let with_root = shown(&native);
        assert_eq!(with_root.last().map(String::as_str), Some(BACKWARD));
        assert_eq!(with_root.len(), 2, "the engine's own frames are left out: {with_root:?}");
        let mut labels = labels(&stacks, &Site { frames: native.to_vec(), ..Site::default() }, false);
        labels.reverse();
        assert_eq!(site_of(&labels), format!("{BACKWARD} ConvolutionBackward0"));
        // A hook in Python has a line.
        let hook = shown(&[&native[..], &[code(1, true)]].concat());
        assert!(
            !hook.contains(&BACKWARD.to_owned()) && hook.contains(&"step (train.py:8)".to_owned()),
            "{hook:?}"
        );
    }

    #[test]
    fn python_code_of_radrm_is_left_out_and_the_programs_line_remains() {
        let mut stacks = stacks();
        for (file, name) in
            [("/tmp/radrm-dry-run-x/radrm_host_models.py", "made"), ("/home/u/radrm_host_models.py", "own")]
        {
            stacks.codes.push(StackCode { file: file.into(), name: name.into() });
        }
        let frames = vec![at(2, 4), at(0, 1), at(0, 1), code(3, true), code(4, false), code(0, true)];
        let site = Site { frames, ..Site::default() };
        let shown = |all| labels(&stacks, &site, all).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(false), ["own (radrm_host_models.py:11)", "<module> (train.py:7)"]);
        assert!(shown(true).contains(&"made (radrm_host_models.py:10)".to_owned()), "{:?}", shown(true));
    }

    /// Debug information names the file that the package's code was compiled from.
    #[test]
    fn compiled_code_of_a_package_is_none_of_the_program() {
        let mut stacks = stacks();
        for (offset, path) in
            [(6, "/v/lib/python3.11/site-packages/pool/memory.cpython-311.so"), (7, "/home/u/memory.so")]
        {
            let module = stacks.modules.len() as u32;
            stacks.modules.push(StackModule { path: path.into(), build_id: Vec::new() });
            let symbol = Symbol {
                function: "__pyx_f_4pool_6memory_alloc".into(),
                file: Some("/project/pool/memory.pyx".into()),
                line: Some(40),
            };
            stacks.symbols.insert((module, offset), vec![symbol]);
        }
        let site = |frame| {
            let frames = vec![at(2, 4), frame, at(0, 1), code(1, false), code(0, true)];
            let mut labels = labels(&stacks, &Site { frames, ..Site::default() }, false);
            labels.reverse();
            site_of(&labels)
        };
        assert_eq!(site(at(3, 6)), "step (train.py:8)");
        assert_eq!(site(at(4, 7)), "__pyx_f_4pool_6memory_alloc (memory.pyx:40)", "the program's own module");
    }

    #[test]
    fn files_of_packages_are_shown_with_their_package() {
        let label = |file: &str| FrameLabel {
            origin: Origin::Interpreted,
            function: "f".into(),
            file: Some(file.into()),
            line: Some(3),
            is_installed: is_installed(file),
        };
        let installed = label("/v/lib/python3.11/site-packages/torch/nn/linear.py");
        assert_eq!(installed.to_string(), "f (torch/nn/linear.py:3)");
        assert!(!installed.is_own_code() && label("/home/u/train.py").is_own_code());
    }
}
