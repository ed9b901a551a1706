//! The daemon's configuration file, and where everything lies.

mod preset;
mod under_mps;

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use radrm_limits::program::kernels::Kernels;
use radrm_need::{MemoryModel, NeedResolver, Trained};
use radrm_protocol::socket::own_socket;
use radrm_scheduler_core::{Preset, Settings, amount};
use serde::Deserialize;

use super::dry_run::settings::DryRuns;
use super::error::DaemonError;
use super::hooks::Hooks;
use super::metrics::Names;
use super::mps::settings::MpsSettings;
use crate::reservations::{self, ReservationSection};
use crate::slurm::settings::SlurmSettings;
use crate::user_limits::{LimitSections, Scope, UserLimitTable};

/// The file that is read if none is named.
pub(crate) const USUAL: &str = "/etc/radrm/radrmd.toml";

/// The file. Everything has a default.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The socket: as root `/run/radrmd/socket`, else `radrmd/socket` in `$XDG_RUNTIME_DIR`.
    pub(crate) socket: PathBuf,
    /// Folder of queue, history, output and profiles: as root `/var/lib/radrm`, else `radrm` in `$XDG_STATE_HOME`.
    pub(crate) state: PathBuf,
    /// Address at which `/metrics` is served; `""` is nowhere. Only loopback addresses are accepted.
    pub(crate) metrics: String,
    /// True if `/metrics` has figures of single jobs, with their users' names.
    pub(crate) metrics_per_job: bool,
    /// True if `/metrics` shows figures of single jobs only to root, system accounts and the daemon's own user, and `radrm nodes` those
    /// of other users only to administrators.
    pub(crate) privacy: bool,
    /// Further names under which `/metrics` shows figures of GPUs.
    pub(crate) metrics_names: Vec<Names>,
    /// Members may see, cancel and hold the jobs of all users.
    pub(crate) admin_group: String,
    /// The highest priority that users may give to their jobs.
    pub(crate) user_priority: i32,
    /// Most jobs that one user may have waiting and running.
    pub(crate) jobs_per_user: u32,
    /// Most bytes that all of these may have on disk: all but their environments is in memory too.
    #[serde(deserialize_with = "amount::plain_bytes")]
    pub(crate) bytes_per_user: u64,
    /// Largest output of a job, bytes; 0: any. Files that a job names itself are not limited.
    #[serde(deserialize_with = "amount::plain_bytes")]
    pub(crate) max_output: u64,
    /// Outputs and profiles of a user's jobs above which no more is submitted, bytes; 0: any. Jobs that start share what is left of it
    /// for their outputs.
    #[serde(deserialize_with = "amount::plain_bytes")]
    pub(crate) disk_per_user: u64,
    /// Free room on the disk of the state that outputs leave, bytes, but a tenth of the disk at most.
    #[serde(deserialize_with = "amount::plain_bytes")]
    pub(crate) disk_reserve: u64,
    /// GPUs to emulate in place of the real ones; `""`: none.
    pub(crate) emulate: String,
    /// Time between two polls of GPUs and jobs, ms.
    #[serde(alias = "look_ms")]
    pub(crate) poll_ms: u64,
    /// Time between two audits for processes without the shim, s. 0: never.
    pub(crate) audit_s: u64,
    /// Days for which jobs that are over are kept, with their output and profiles. 0: for ever.
    pub(crate) keep_days: u32,
    /// Cores for jobs; 0 is what the machine has.
    pub(crate) cpus: u32,
    /// Host memory for jobs, bytes; 0 is what the machine has.
    #[serde(deserialize_with = "amount::plain_bytes")]
    pub(crate) host_memory: u64,
    /// Most memory traffic of the host, bytes in a second; 0: not known, so that of jobs is not measured.
    #[serde(deserialize_with = "amount::plain_bytes")]
    pub(crate) memory_bandwidth: u64,
    /// Where the kernel's resctrl is mounted, the best source of the memory traffic of jobs.
    pub(crate) resctrl: PathBuf,
    /// Memory of each GPU that jobs never get, MiB.
    pub(crate) gpu_reserve_mib: u64,
    /// Form in which `CUDA_VISIBLE_DEVICES` of jobs names GPUs.
    pub(crate) visible_devices: VisibleDevices,
    /// Recording of jobs' kernel launches, as `radrm-run --kernels` takes it, unless a job has `RADRM_KERNELS`; `""`: no
    /// more than counts.
    pub(crate) kernels: String,
    /// The log of all events and decisions of the scheduler; `""`: none.
    pub(crate) events: PathBuf,
    /// Programs before and after each attempt.
    pub(crate) hooks: Hooks,
    /// Suspending jobs without loss.
    pub(crate) suspend: Suspend,
    /// Placement of jobs (`policy` and what it needs), the order in which they are considered (`order`), and what
    /// makes a running job wait for others (`throttle`, `eviction`) or start again (`recovery`).
    pub(crate) scheduler: Settings,
    /// Estimation of needs.
    pub(crate) estimator: Estimators,
    /// Dry runs of jobs of which nothing is known.
    pub(crate) dry_run: DryRuns,
    /// Placement of jobs by Slurm.
    pub(crate) slurm: SlurmSettings,
    /// True if a MIG instance takes several jobs, by time slices; else one at a time.
    pub(crate) share_instances: bool,
    /// Jobs that run under MPS.
    pub(crate) mps: MpsSettings,
    /// Limits of users in the queue. They hold beside those of GPU memory in radrm.toml.
    pub(crate) limits: LimitSections,
    /// GPUs that are kept for people from one time to another: [reservations](how-to/limit-a-lab.md#reservations). `radrm admin reserve`
    /// makes others.
    pub(crate) reservations: Vec<ReservationSection>,
    /// Another system whose settings are those of `scheduler` that the file does not state.
    #[serde(deserialize_with = "preset::named")]
    pub(crate) preset: Option<Preset>,
}

/// Form of the names of GPUs that jobs get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VisibleDevices {
    /// By number in the order of their PCI buses, as `nvidia-smi` has them. By UUID on nodes with MIG instances, while a GPU
    /// is lost, and under MPS.
    #[default]
    Index,
    /// By UUID.
    Uuid,
}

/// Estimation of needs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Estimators {
    /// A file that `radrm train` made; `""` is the model that ships.
    pub(crate) model: PathBuf,
    /// True if the steps of PyTorch's optimizers are marked in every job, by hooks that PyTorch has for that. Jobs
    /// with `--fixed-shapes` are always marked.
    pub(crate) mark_steps: bool,
    /// Estimators of memory in the order in which they are asked, behind what a user declares; others are not asked. None:
    /// all in the usual order.
    pub(crate) order: Vec<String>,
}

impl Estimators {
    /// Resolves needs by this model in the configured order.
    pub(crate) fn resolver(&self, model: &Trained) -> Result<NeedResolver, DaemonError> {
        NeedResolver::ordered(model, &self.order).map_err(DaemonError::EstimatorOrder)
    }

    /// The model. A file that cannot be used is an error: jobs would get other needs than the administrator asked for.
    pub(crate) fn trained(&self) -> Result<Trained, DaemonError> {
        const FAILED: &str = " is no memory model";
        if self.model.as_os_str().is_empty() {
            return Ok(Trained::default());
        }
        let text =
            fs::read_to_string(&self.model).map_err(|error| DaemonError::not(&self.model, FAILED, &error))?;
        let model = MemoryModel::parse(&text).map_err(|error| DaemonError::by(&self.model, FAILED, error))?;
        Ok(Trained::new(model))
    }
}

/// Suspension of jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Suspend {
    /// True if jobs are suspended at all.
    pub(crate) on: bool,
    /// Time for work on the GPU to end before a job is suspended, ms.
    pub(crate) lock_ms: u32,
    /// Host memory that all suspended jobs may take, bytes; 0 is what there is.
    #[serde(deserialize_with = "amount::plain_bytes")]
    pub(crate) host_memory: u64,
}

impl Default for Suspend {
    fn default() -> Self {
        Self { on: true, lock_ms: 10_000, host_memory: 0 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: own_socket(),
            state: own_state(),
            metrics: "127.0.0.1:9835".to_owned(),
            metrics_per_job: true,
            privacy: true,
            metrics_names: Vec::new(),
            admin_group: "radrm-admin".to_owned(),
            user_priority: 0,
            jobs_per_user: 20_000,
            bytes_per_user: 256 << 20,
            max_output: 1 << 30,
            disk_per_user: 20 << 30,
            disk_reserve: 256 << 20,
            emulate: String::new(),
            poll_ms: 1000,
            audit_s: 60,
            keep_days: 30,
            cpus: 0,
            host_memory: 0,
            memory_bandwidth: 0,
            resctrl: "/sys/fs/resctrl".into(),
            gpu_reserve_mib: 0,
            visible_devices: VisibleDevices::Index,
            kernels: "sample".to_owned(),
            events: PathBuf::new(),
            hooks: Hooks::default(),
            suspend: Suspend::default(),
            scheduler: Settings::default(),
            estimator: Estimators::default(),
            dry_run: DryRuns::default(),
            slurm: SlurmSettings::default(),
            share_instances: false,
            mps: MpsSettings::default(),
            limits: LimitSections::default(),
            reservations: Vec::new(),
            preset: None,
        }
    }
}

impl Config {
    /// Reads the file that is named, or the usual one if it is there.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, DaemonError> {
        let path = named.unwrap_or(Path::new(USUAL));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(DaemonError::file(path, &error)),
        };
        let config = Self::parse(&text).and_then(|config| config.hooks.check().map(|()| config));
        config.map_err(|error| DaemonError::Configuration { path: path.to_owned(), error: Box::new(error) })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, DaemonError> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let what = match misplaced(error.message()) {
                Some(key) => format!("{key} belongs below a line [scheduler]"),
                None => radrm_text::explained(error.message()),
            };
            DaemonError::Line { line, what }
        })?;
        if let Some(preset) = config.preset {
            let (scheduler, is_mps) = preset::apply(preset, text)?;
            config.scheduler = scheduler;
            config.mps.on |= is_mps;
        } else if config.mps.is_for_all() {
            under_mps::apply(&mut config.scheduler, text);
        }
        config.metrics()?;
        if !config.kernels.is_empty() {
            config.kernels.parse::<Kernels>().map_err(DaemonError::Kernels)?;
        }
        if let Some(key) = config.dry_run.fault() {
            return Err(DaemonError::DryRunSetting(key));
        }
        let wrong = config.reservations.iter().find_map(|section| section.stated().err());
        if let Some(wrong) = wrong {
            return Err(DaemonError::Reservation(Box::new(wrong)));
        }
        if config.poll_ms < 50 {
            return Err(DaemonError::ShortPoll);
        }
        Ok(config)
    }

    /// Odd settings, a sentence each: parts that are small, as if they were in per cent, and users without an account.
    pub(crate) fn remarks(&self) -> Vec<String> {
        // Accounts that cannot be asked for are not missing.
        let is_user = |name: &str| !matches!(nix::unistd::User::from_name(name), Ok(None));
        let usual = Settings::default().parts();
        let parts = self.scheduler.parts().into_iter().zip(usual);
        let odd = parts.filter(|((_, part), (_, usual))| part != usual);
        let odd = odd.filter_map(|((name, part), _)| Some((name, part?.0)));
        let odd = odd.filter(|(_, part)| (1..=100).contains(part));
        odd.map(|(name, part)| {
            let meant = part * 10;
            format!(
                "scheduler.{name} = {part} is {} %: parts are in thousandths; for {part} % write {meant} or \"{part}%\"",
                f64::from(part) / 10.0
            )
        })
        .chain(self.mps.unknown_users(is_user))
        .chain(UserLimitTable::unknown(&self.limits, Scope::is_known))
        .chain(reservations::unknown(&self.reservations, Scope::is_known))
        .collect()
    }

    /// Takes over from a newer version of the file what can change while jobs run. Returns the names of settings that
    /// differ and only count from the daemon's next start on.
    pub(crate) fn reload(&mut self, new: Self) -> Vec<&'static str> {
        self.user_priority = new.user_priority;
        self.jobs_per_user = new.jobs_per_user;
        self.bytes_per_user = new.bytes_per_user;
        self.max_output = new.max_output;
        self.disk_per_user = new.disk_per_user;
        self.disk_reserve = new.disk_reserve;
        self.keep_days = new.keep_days;
        self.limits = new.limits;
        self.reservations = new.reservations;
        self.kernels = new.kernels;
        self.visible_devices = new.visible_devices;
        self.suspend = new.suspend;
        self.hooks = new.hooks;
        self.dry_run = new.dry_run;
        self.metrics_per_job = new.metrics_per_job;
        self.privacy = new.privacy;
        self.metrics_names = new.metrics_names;
        let fixed = [
            ("socket", self.socket != new.socket),
            ("state", self.state != new.state),
            ("metrics", self.metrics != new.metrics),
            ("admin_group", self.admin_group != new.admin_group),
            ("emulate", self.emulate != new.emulate),
            ("poll_ms", self.poll_ms != new.poll_ms),
            ("audit_s", self.audit_s != new.audit_s),
            ("cpus", self.cpus != new.cpus),
            ("host_memory", self.host_memory != new.host_memory),
            ("memory_bandwidth", self.memory_bandwidth != new.memory_bandwidth),
            ("resctrl", self.resctrl != new.resctrl),
            ("gpu_reserve_mib", self.gpu_reserve_mib != new.gpu_reserve_mib),
            ("events", self.events != new.events),
            ("[scheduler]", self.scheduler != new.scheduler),
            ("[estimator]", self.estimator != new.estimator),
            ("[slurm]", self.slurm != new.slurm),
            ("[mps]", self.mps != new.mps),
        ];
        fixed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// The address of `/metrics`.
    pub(crate) fn metrics(&self) -> Result<Option<SocketAddr>, DaemonError> {
        if self.metrics.is_empty() {
            return Ok(None);
        }
        let address: SocketAddr =
            self.metrics.parse().map_err(|_| DaemonError::NoAddress(self.metrics.clone()))?;
        if !address.ip().is_loopback() {
            return Err(DaemonError::PublicAddress(address));
        }
        Ok(Some(address))
    }
}

/// A setting of the scheduler that stands where the daemon's are.
fn misplaced(message: &str) -> Option<&str> {
    let key = message.strip_prefix("unknown field `")?.split('`').next()?;
    let settings = serde_json::to_value(Settings::default()).ok()?;
    (message.contains("`socket`") && settings.get(key).is_some()).then_some(key)
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn absolute(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn own_state() -> PathBuf {
    if root() {
        return PathBuf::from("/var/lib/radrm");
    }
    let home = absolute("HOME").unwrap_or_else(env::temp_dir);
    absolute("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")).join("radrm")
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_scheduler_core::{Hot, Permille, Policy};

    #[test]
    fn a_model_file_that_cannot_be_used_refuses_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.json");
        let of = |path: &Path| Estimators { model: path.to_owned(), ..Estimators::default() }.trained();
        let why = of(&path).unwrap_err().to_string();
        assert!(why.ends_with("model.json is no memory model: No such file or directory"), "{why}");
        fs::write(&path, r#"{"version": 9}"#).unwrap();
        let why = of(&path).unwrap_err().to_string();
        assert!(why.lines().count() == 1 && why.contains("version 9"), "{why}");
        fs::write(&path, MemoryModel::shipped().to_json().unwrap()).unwrap();
        assert!(of(&path).is_ok() && of(Path::new("")).is_ok());
        let config = Config::parse("[estimator]\nmodel = \"/m\"\n").unwrap();
        assert_eq!(config.estimator.model, Path::new("/m"));
    }

    #[test]
    fn estimators_are_asked_in_the_configured_order() {
        let of = |order: &str| {
            let config = Config::parse(&format!("[estimator]\norder = [{order}]\n")).unwrap();
            config.estimator.resolver(&Trained::default())
        };
        let found = format!("{:?}", of(r#""file", "history""#).unwrap());
        assert_eq!(found, r#"["declared", "job's file", "own history"]"#);
        let why = of(r#""oracle""#).unwrap_err().to_string();
        assert!(why.contains("[estimator] order") && why.contains("\"oracle\""), "{why}");
    }

    #[test]
    fn a_reload_takes_limits_over_and_names_what_needs_a_restart() {
        let mut config = Config::default();
        let mut new = Config { jobs_per_user: 5, keep_days: 1, poll_ms: 500, ..Config::default() };
        new.scheduler.policy = Policy::Exclusive;
        assert_eq!(config.reload(new), ["poll_ms", "[scheduler]"]);
        assert_eq!((config.jobs_per_user, config.keep_days, config.poll_ms), (5, 1, 1000));
        // What the administrator forbids has to end without a restart.
        let on = Config { dry_run: DryRuns { on: true, ..DryRuns::default() }, ..Config::default() };
        assert!(config.reload(on).is_empty() && config.dry_run.on);
        assert!(config.reload(Config::default()).is_empty() && !config.dry_run.on);
    }

    #[test]
    fn parts_are_thousandths_or_per_cent_and_what_looks_like_the_other_is_remarked() {
        let smact = |value: &str| {
            let config = Config::parse(&format!("[scheduler.preconditions]\nsmact = {value}\n")).unwrap();
            (config.scheduler.preconditions.smact.map(|part| part.0), config.remarks())
        };
        let none = Vec::<String>::new();
        assert_eq!(smact("\"80%\""), (Some(800), none.clone()));
        assert_eq!(smact("\"12.5%\"  # of all"), (Some(125), none.clone()));
        assert_eq!(smact("800"), (Some(800), none.clone()));
        let (part, remarks) = smact("80");
        assert_eq!(part, Some(80));
        assert!(
            matches!(&remarks[..], [said] if said.contains("is 8 %") && said.contains("\"80%\"")),
            "{remarks:?}"
        );
        assert_eq!(Config::default().remarks(), none);
    }

    #[test]
    fn per_cent_is_read_wherever_a_part_stands_and_nowhere_else() {
        let read = |text: &str| Config::parse(text).unwrap().scheduler.preconditions.hot;
        let hot = Hot { smocc: Permille(500), drama: Permille(600) };
        assert_eq!(
            read("[scheduler.preconditions]\nhot = { smocc = \"50%\", drama = \"60%\" }\n"),
            Some(hot)
        );
        assert_eq!(read("[scheduler]\npreconditions.hot = { smocc = '50%', drama = 600 }\n"), Some(hot));
        let said = Config::parse(
            "[scheduler.throttle]\nstep = 6\n[scheduler.assumed]\nsmact = 60\nsmocc = 1\ndrama = 0\n",
        );
        let said = said.unwrap().remarks();
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(Config::parse("admin_group = \"80%\"").unwrap().admin_group, "80%");
        for text in ["poll_ms = \"50%\"", "metrics = \"x%y\"", "[scheduler]\nmin_speed = \"2x%\""] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.lines().count() == 1, "{error}");
        }
    }

    /// The file that packages install, with and without the signs that make its lines comments.
    #[test]
    fn the_file_that_ships_states_the_defaults() {
        let shipped = include_str!("../../contrib/config/radrmd.toml");
        assert!(shipped.lines().all(|line| line.is_empty() || line.starts_with('#')), "it changes nothing");
        let text: String = shipped
            .lines()
            .filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')))
            .map(|line| format!("{line}\n"))
            .collect();
        let stated = Config::parse(&text).unwrap();
        // These two depend on the user who starts the daemon. The file has those of root.
        let [socket, state] = ["/run/radrmd/socket", "/var/lib/radrm"].map(PathBuf::from);
        let usual = Config { socket, state, ..Config::default() };
        assert_eq!(format!("{stated:?}"), format!("{usual:?}"));
        let fields: toml::Table = toml::from_str(&text).unwrap();
        // Each key of the daemon's own, as the type names them in the error about a wrong one.
        let known = toml::from_str::<Config>("no_such_key = 1").unwrap_err().to_string();
        let (_, known) = known.split_once("expected one of ").unwrap();
        let known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
        assert!(known.len() > 15, "{known:?}");
        for key in known.into_iter().filter(|key| *key != "look_ms") {
            assert!(fields.contains_key(key), "{key} is not in contrib/config/radrmd.toml");
        }
    }

    #[test]
    fn an_empty_file_is_the_default_and_wrong_ones_are_told_with_their_line() {
        let config = Config::parse("").unwrap();
        assert_eq!(config.scheduler.policy, Policy::Aware);
        assert!(config.metrics().unwrap().is_some());
        let names = Config::parse("metrics_names = [\"dcgm\", \"opentelemetry\"]").unwrap().metrics_names;
        assert_eq!(names, [Names::Dcgm, Names::OpenTelemetry]);
        let config = Config::parse("user_priority = 3\n[scheduler]\npolicy = \"magm\"\n").unwrap();
        assert_eq!((config.user_priority, config.scheduler.policy), (3, Policy::Magm));
        for (text, part) in [
            ("poll_ms = 1000\npolicy = \"magm\"", "line 2: policy belongs below a line [scheduler]"),
            ("[scheduler]\npolicy = \"magm\"\npolicies = 1", "line 3: unknown field `policies`"),
            ("[scheduler]\npolicy = \"MAGM\"", "; did you mean magm?"),
            ("polll_ms = 1000", "; did you mean poll_ms?"),
            ("poll_ms = 1000\nmetricss = 1", "line 2"),
            ("metrics = \"0.0.0.0:1\"", "other machines"),
            ("metrics = \"x\"", "no address"),
            ("poll_ms = 1", "at least 50"),
            ("[dry_run]\nlimit_s = 0", "dry_run.limit_s is at least 1"),
            ("[dry_run]\nat_once = 0", "dry_run.at_once is at least 1"),
            ("[dry_run]\nsteps = 0", "dry_run.steps is at least 1"),
            ("[dry_run]\nmemory_mib = 0", "dry_run.memory_mib is at least 1"),
            ("[dry_run]\ncpus = 0", "dry_run.cpus is at least 1"),
            ("[dry_run]\nprocesses = 0", "dry_run.processes is at least 1"),
            ("kernels = \"often\"", "kernels: `often` is none of"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
    }
}
