//! Memory holders in a framework's allocator: by category, by module and by line.

use super::sections::{Report, more};
use crate::model::tensors::{GpuTensorsSummary, TensorsSummary, module_label, parts};
use radrm_profile::Bytes;
use radrm_text::number::grouped;
use radrm_text::{Table, clean, left, right};

/// Modules and lines that are listed of each process and GPU.
const SHOWN: usize = 8;
/// Processes that are listed.
const PROCESSES: usize = 4;

/// Reason that only the driver's allocations are known of a process, cleaned. `is_one`: it is the only process.
pub(crate) fn missing(process: &TensorsSummary, is_one: bool) -> Option<String> {
    let why = process.missing.as_ref()?;
    let who = if is_one { String::new() } else { format!("process {}: ", process.pid) };
    Some(format!("tensors: {who}driver allocations only: {}", clean(why)))
}

impl Report<'_> {
    /// Writes the holders of the tensors, if they were recorded.
    pub(super) fn tensors(&self, out: &mut String) {
        let all = &self.summary.tensors;
        let (known, unknown): (Vec<_>, Vec<_>) = all.iter().partition(|process| process.missing.is_none());
        for process in known.into_iter().chain(unknown).take(PROCESSES) {
            if let Some(missing) = missing(process, all.len() == 1) {
                out.push_str(&format!("\n{missing}\n"));
            }
            for gpu in &process.gpus {
                let several = all.len() > 1 || process.gpus.len() > 1;
                self.categories(out, process, gpu, several);
                self.modules(out, gpu);
                self.tensor_lines(out, gpu);
            }
            for remark in &process.remarks {
                out.push_str(&format!("  {}\n", clean(remark)));
            }
        }
        more(out, all.len().saturating_sub(PROCESSES) as u64);
    }

    fn categories(&self, out: &mut String, process: &TensorsSummary, gpu: &GpuTensorsSummary, several: bool) {
        let mut table = Table::new(vec![right("bytes"), right("share"), right("blocks"), left("category")]);
        for of in &gpu.categories {
            let blocks = grouped(of.blocks);
            table.row(vec![
                of.bytes.to_string(),
                gpu.share(of.bytes),
                blocks,
                of.category.label().to_owned(),
            ]);
        }
        if gpu.cached_bytes > Bytes::ZERO {
            let name = "besides, cached: reserved and in no use".to_owned();
            table.row(vec![gpu.cached_bytes.to_string(), String::new(), String::new(), name]);
        }
        let place = if several { format!(", pid {}, GPU {}", process.pid, gpu.gpu) } else { String::new() };
        self.section(out, &format!("{} · {}{place}", gpu.title(), clean(&process.framework)), table);
    }

    fn modules(&self, out: &mut String, gpu: &GpuTensorsSummary) {
        if gpu.modules.iter().all(|of| of.module.is_none()) {
            return;
        }
        let mut table = Table::new(vec![right("bytes"), right("share"), left("module"), left("of it")])
            .within(self.width, 24);
        let has_several_models = gpu.has_several_models();
        for of in gpu.modules.iter().take(SHOWN) {
            let name = clean(&module_label(of, has_several_models)).into_owned();
            table.row(vec![of.bytes.to_string(), gpu.share(of.bytes), name, parts(&of.categories)]);
        }
        self.section(out, "tensors by module", table);
        more(out, (gpu.modules.len().saturating_sub(SHOWN) as u64).saturating_add(gpu.modules_not_listed));
    }

    fn tensor_lines(&self, out: &mut String, gpu: &GpuTensorsSummary) {
        let mut table = Table::new(vec![right("bytes"), right("share"), left("line"), left("of it")])
            .within(self.width, 24);
        for of in gpu.lines.iter().take(SHOWN) {
            let name = clean(&of.site).into_owned();
            table.row(vec![of.bytes.to_string(), gpu.share(of.bytes), name, parts(&of.categories)]);
        }
        self.section(out, "tensors by line", table);
        more(out, (gpu.lines.len().saturating_sub(SHOWN) as u64).saturating_add(gpu.lines_not_listed));
        if let Some(stacks) = gpu.whose_stacks() {
            out.push_str(&format!("  {stacks}\n"));
        }
    }
}
