//! Reports of NVML's sampler that go into the profile.

use super::Watch;
use crate::nvml::Message;
use crate::remainder::Around;
use crate::source::{Brief, Source};

impl<S: Source> Watch<S> {
    pub(super) fn hear(&mut self, messages: Vec<Message>, briefs: &[Brief]) {
        for message in messages {
            match message {
                Message::Driver(driver, cuda) => {
                    self.driver = (driver, cuda);
                    self.learn_gpus();
                }
                Message::Sample(mut sample) => {
                    self.hear_neighbours(&sample, briefs);
                    let listed = sample.processes.len();
                    let before = std::mem::take(&mut self.last_briefs);
                    let around = Around { before: &before, before_t: self.last_poll, after: briefs };
                    self.remainders.compare(&mut sample, &around);
                    self.last_briefs = before;
                    self.notice_silence(listed, sample.processes.len(), briefs);
                    self.samples.add(self.without_false_load(sample));
                }
                Message::Load(reading) => self.hear_load(&reading),
                Message::NoMonitor(gpu, number, why) => self.no_monitor(gpu, number, why),
                Message::Unusable(why) => self.note(format!(
                    "NVML cannot be used ({why}): its figures of memory, load and power are missing"
                )),
                Message::NoSuchGpu(gpu, why) => self.note(format!(
                    "NVML reports nothing of GPU {} ({why}): its figures of it are missing",
                    gpu.0
                )),
            }
        }
        let ready = self.samples.take();
        self.samples_ready.extend(ready);
    }

    /// In a container NVML may speak of process ids of the host.
    fn notice_silence(&mut self, listed: usize, ours: usize, briefs: &[Brief]) {
        let holding =
            briefs.iter().any(|brief| brief.alive && brief.held.iter().any(|held| !held.1.is_zero()));
        if listed == 0 || ours > 0 || !holding {
            self.nvml_silent.samples = 0;
            return;
        }
        self.nvml_silent.samples += 1;
        if self.nvml_silent.samples == 20 && !std::mem::replace(&mut self.nvml_silent.said, true) {
            self.note(
                "NVML lists processes but none of this job's (in a container it speaks of the host's process ids): \
                 its figures per process are missing"
                    .into(),
            );
        }
    }
}
