//! Refused requests: what the processes wrote down of them goes into the
//! profile, and NVML is asked at once.

use super::Watch;
use crate::source::{Brief, Source};
use radrm_profile::Record;
use radrm_profile::model::{NvmlSample, Process, ProcessKey};

/// Other processes of the job whose largest blocks are looked for.
const OTHERS_WITH_BLOCKS: usize = 8;
/// So many of each.
const BLOCKS_OF_OTHERS: usize = 8;
/// Blocks of the process itself where it had no time to look at all of them.
const BLOCKS: usize = 32;

impl<S: Source> Watch<S> {
    /// Reads what processes have written down of refusals: of those in
    /// `refused` now, of the others when all is read anyway.
    pub(super) fn look_into_refusals(&mut self, briefs: &[Brief], refused: &[ProcessKey], all: bool) {
        let mut is_news = false;
        for brief in briefs.iter().filter(|brief| all || !brief.alive || refused.contains(&brief.key)) {
            for found in self.source.postmortems(brief.key) {
                let source = &mut self.source;
                let processes = &self.output.profile.processes;
                is_news |= self.postmortems.found(
                    found,
                    |pid| is_own(pid, briefs, processes),
                    |postmortem| {
                        let (gpu, t) = (postmortem.gpu(), postmortem.request.t);
                        let is_host = postmortem.is_for_the_host();
                        if postmortem.blocks_cut || !postmortem.is_complete {
                            let blocks = source.blocks_before(postmortem.process, gpu, t, is_host, BLOCKS);
                            if !blocks.is_empty() {
                                postmortem.blocks = blocks;
                            }
                        }
                        let others = postmortem.others.iter_mut().flatten();
                        for other in others.take(OTHERS_WITH_BLOCKS) {
                            other.blocks = source.blocks_before(other.key, gpu, t, is_host, BLOCKS_OF_OTHERS);
                        }
                    },
                );
            }
        }
        if is_news {
            self.sampler.ask();
        }
        self.write_postmortems(all);
    }

    /// Hears a list of NVML before anything is left out of it.
    pub(super) fn hear_neighbours(&mut self, list: &NvmlSample, briefs: &[Brief]) {
        let processes = &self.output.profile.processes;
        self.postmortems.hear(list, |pid| is_own(pid, briefs, processes));
    }

    /// Writes what is new; `all`: also what could wait.
    pub(super) fn write_postmortems(&mut self, all: bool) {
        for postmortem in self.postmortems.take(all) {
            self.write(Record::Postmortem(Box::new(postmortem)));
        }
    }
}

fn is_own(pid: u32, briefs: &[Brief], processes: &[Process]) -> bool {
    briefs.iter().any(|brief| brief.pid == pid) || processes.iter().any(|it| it.identity.pid == pid)
}
