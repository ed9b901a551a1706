//! Knowledge of a replay's scheduler about jobs, and its sources.

/// Source of needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The real peak: an equal run was measured.
    #[default]
    Measured,
    /// Nothing is known of any job.
    Unknown,
    /// A column of the trace.
    Column(String),
    /// The peaks of runs of the same program that ended in the trace before; unknown until then.
    History,
    /// The learned model alone, by what the trace records of a job's tensors; unknown where it records nothing.
    Learned,
    /// The recorded dry run alone; unknown where there is none.
    DryRun,
    /// All that a daemon has: what the job's user declares, runs of the program that ended in the trace before, the
    /// recorded dry run, and estimates of the trace as those of the job's file.
    Combined,
}

/// Knowledge of the scheduler about run times and activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// Of every job, as from an earlier, equal run.
    #[default]
    All,
    /// Of programs that ended in the trace before.
    Learned,
    /// Likewise, and of a program that never ran its activity as a dry run predicts it.
    Predicted,
    /// Of none.
    Nothing,
}

impl Knowledge {
    /// Returns true if runs that end teach.
    #[must_use]
    pub(super) fn learns(self) -> bool {
        matches!(self, Self::Learned | Self::Predicted)
    }
}
