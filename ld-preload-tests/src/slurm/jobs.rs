//! Records of a job in Slurm, and the output of its script.

use std::fs;

use super::Slurm;

impl Slurm {
    /// Value of a job's field in the controller, `TresPerNode` for instance.
    pub fn field(&self, job: u32, name: &str) -> String {
        let text = self.said("scontrol", &["show", "job", &job.to_string()]);
        let line = text.lines().find_map(|line| {
            let (_, value) = line.split_once(&format!("{name}="))?;
            // A comment has blanks; other fields stand side by side.
            let ends = if name == "Comment" { value.len() } else { value.find(' ').unwrap_or(value.len()) };
            Some(value[..ends].trim_end().to_owned())
        });
        line.unwrap_or_else(|| panic!("job {job} has no {name}:\n{text}"))
    }

    /// Resources that a job asks a node for, as Slurm 22.05 writes them; a newer one writes `gres/shard:10`.
    pub fn resources(&self, job: u32) -> String {
        self.field(job, "TresPerNode").replace("gres/", "gres:")
    }

    /// Waits until a job has ended and all its output is there.
    #[track_caller]
    pub fn until_ended(&self, job: u32) {
        self.until("the job has ended", || {
            let state = self.said("squeue", &["-h", "-t", "all", "-j", &job.to_string(), "-o", "%T"]);
            !state.lines().any(|state| ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED"].contains(&state))
        });
    }

    /// Output of a script.
    ///
    /// # Panics
    /// If it is not there.
    pub fn output(&self, job: u32) -> String {
        let path = self.path(&format!("work/out.4294967294.{job}"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
