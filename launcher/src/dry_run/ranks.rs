//! `--ranks 0,63 --world 64`: some ranks of a large job, each on an emulated GPU. The others are modelled.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use radrm_emulator_machine::{ENV_ORDER, MAX_GPUS, MachineSpec};
use radrm_limits::program::environment::Environment;
use radrm_profile::model::dry_run::number_list;
use thiserror::Error;

/// The machine of a dry run with ranks that names none: a usual node.
pub const USUAL_NODE: &str = "8xH200";
/// Names the ranks that run to the program's processes.
pub const RANKS: &str = "RADRM_DRY_RUN_RANKS";
/// Programs that start ranks themselves.
const STARTERS: [&str; 5] = ["torchrun", "accelerate", "deepspeed", "mpirun", "srun"];

/// The ranks that run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranks {
    /// Ascending, at least one.
    pub run: Vec<u32>,
    /// Number of all ranks of the job.
    pub world: u32,
}

/// Reason that ranks cannot run as asked, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum RanksError {
    #[error("--ranks `{0}` is not a list of ranks such as 0,63 or 0-7")]
    Unreadable(String),
    #[error("--ranks names rank {0} twice")]
    Twice(u32),
    #[error("--ranks names more ranks than an emulated machine can have GPUs, {MAX_GPUS}")]
    Beyond,
    #[error("--world 0 has no ranks")]
    NoWorld,
    #[error("--ranks {rank}: the ranks of --world {world} are 0 to {}", world - 1)]
    Outside { rank: u32, world: u32 },
    #[error(
        "--ranks names {ranks} ranks, and the machine {machine} has {gpus} GPUs: each rank needs one of its own"
    )]
    TooMany { ranks: usize, machine: String, gpus: usize },
    #[error(
        "--ranks {first},{second}: both are GPU {local} of their nodes, and the GPUs of the machine differ; name a \
         machine of one model"
    )]
    Mixed { first: u32, second: u32, local: usize },
    #[error("--ranks starts the ranks itself: give the script without {0}")]
    Starter(String),
}

impl Ranks {
    /// Reads a list such as `0,8-11,63` of the ranks of a job with `world` ranks.
    ///
    /// # Errors
    /// [`RanksError`].
    pub fn parse(list: &str, world: u32) -> Result<Self, RanksError> {
        if world == 0 {
            return Err(RanksError::NoWorld);
        }
        let unreadable = || RanksError::Unreadable(list.to_owned());
        let number = |word: &str| word.trim().parse::<u32>().map_err(|_| unreadable());
        let mut run = BTreeSet::new();
        for part in list.split(',') {
            let (from, to) = match part.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                None => (number(part)?, number(part)?),
            };
            if from > to {
                return Err(unreadable());
            }
            // Before the range is walked through: it may be long.
            if to >= world {
                return Err(RanksError::Outside { rank: to, world });
            }
            if (to - from) as usize >= MAX_GPUS {
                return Err(RanksError::Beyond);
            }
            for rank in from..=to {
                if !run.insert(rank) {
                    return Err(RanksError::Twice(rank));
                }
            }
        }
        Ok(Self { run: run.into_iter().collect(), world })
    }

    /// As it is written on the command line: `0-7,63`.
    #[must_use]
    pub fn list(&self) -> String {
        number_list(self.run.iter().copied())
    }

    /// Refuses commands that start ranks themselves.
    ///
    /// # Errors
    /// [`RanksError::Starter`].
    pub fn check_command(&self, words: &[OsString]) -> Result<(), RanksError> {
        let name =
            |word: &OsString| Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = words.first().map(name).unwrap_or_default();
        let modules = ["torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"];
        let module = words.windows(2).find(|pair| pair[0] == "-m").map(|pair| name(&pair[1]));
        let starter = STARTERS.contains(&program.as_str()).then_some(program);
        match starter.or(module.filter(|module| modules.contains(&module.as_str()))) {
            Some(starter) => Err(RanksError::Starter(starter)),
            None => Ok(()),
        }
    }

    /// Gives each rank its GPU. The machine stands for each node: a rank is GPU `rank % GPUs` of node `rank / GPUs`. Where
    /// ranks of several nodes are the same GPU there, all but the first get one of the machine that is left over,
    /// under the number that they expect.
    ///
    /// # Errors
    /// [`RanksError`]: there are too few GPUs, or they are not alike.
    pub fn place(&self, machine: &MachineSpec) -> Result<Vec<Placed>, RanksError> {
        let gpus = machine.gpu.len();
        if self.run.len() > gpus {
            let models: Vec<&str> = machine.gpu.iter().map(|gpu| gpu.id.as_str()).collect();
            let alike = models.windows(2).all(|pair| pair[0] == pair[1]);
            let machine = if alike { format!("{gpus}x{}", models[0]) } else { models.join("+") };
            return Err(RanksError::TooMany { ranks: self.run.len(), machine, gpus });
        }
        let local = |rank: u32| rank as usize % gpus;
        let mut owner: Vec<Option<u32>> = vec![None; gpus];
        let mut late = Vec::new();
        for rank in &self.run {
            match owner[local(*rank)] {
                None => owner[local(*rank)] = Some(*rank),
                Some(first) if machine.gpu.iter().any(|gpu| *gpu != machine.gpu[0]) => {
                    return Err(RanksError::Mixed { first, second: *rank, local: local(*rank) });
                }
                Some(_) => late.push(*rank),
            }
        }
        let free: Vec<usize> = (0..gpus).filter(|gpu| owner[*gpu].is_none()).collect();
        for (rank, gpu) in late.into_iter().zip(free) {
            owner[gpu] = Some(rank);
        }
        let place = |(gpu, rank): (usize, &Option<u32>)| {
            let rank = (*rank)?;
            let node = rank / gpus as u32;
            let on_node = (self.world - node * gpus as u32).min(gpus as u32);
            Some(Placed { rank, local: local(rank), node, on_node, gpu, gpus })
        };
        let mut all: Vec<Placed> = owner.iter().enumerate().filter_map(place).collect();
        all.sort_unstable_by_key(|placed| placed.rank);
        Ok(all)
    }
}

/// A rank, and where it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Rank in the job.
    pub rank: u32,
    /// Number on its node, and of its GPU there.
    pub local: usize,
    /// Number of its node.
    pub node: u32,
    /// Ranks of its node.
    pub on_node: u32,
    /// Number of its GPU on the emulated machine.
    pub gpu: usize,
    /// GPUs of the machine.
    gpus: usize,
}

impl Placed {
    /// Sets the variables that the rank's process finds in its environment, as from torchrun.
    pub fn enter(&self, ranks: &Ranks, port: u16, environment: &mut Environment) {
        let nodes = ranks.world.div_ceil(self.gpus as u32);
        let numbers = [
            ("RANK", self.rank),
            ("LOCAL_RANK", self.local as u32),
            ("WORLD_SIZE", ranks.world),
            ("LOCAL_WORLD_SIZE", self.on_node),
            ("GROUP_RANK", self.node),
            ("GROUP_WORLD_SIZE", nodes),
            ("ROLE_RANK", self.rank),
            ("ROLE_WORLD_SIZE", ranks.world),
            ("MASTER_PORT", port.into()),
            ("TORCHELASTIC_RESTART_COUNT", 0),
            ("TORCHELASTIC_MAX_RESTARTS", 0),
        ];
        for (name, number) in numbers {
            environment.set(name, number.to_string().as_bytes());
        }
        environment.set("ROLE_NAME", b"default");
        environment.set("MASTER_ADDR", b"127.0.0.1");
        environment.set("TORCHELASTIC_RUN_ID", b"none");
        if environment.get("OMP_NUM_THREADS").is_none() {
            environment.set("OMP_NUM_THREADS", b"1");
        }
        let run: Vec<String> = ranks.run.iter().map(u32::to_string).collect();
        environment.set(RANKS, run.join(",").as_bytes());
        if self.gpu != self.local {
            let mut order: Vec<usize> = (0..self.gpus).collect();
            order.swap(self.gpu, self.local);
            let order: Vec<String> = order.iter().map(usize::to_string).collect();
            environment.set(ENV_ORDER, order.join(",").as_bytes());
        }
    }
}

/// A port that is free now, for programs that listen at the address that they are given.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map_or(29500, |address| address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbers_and_ranges() {
        let run = |list: &str| Ranks::parse(list, 64).map(|ranks| ranks.run);
        assert_eq!(run("0,63"), Ok(vec![0, 63]));
        assert_eq!(run("8-10, 0"), Ok(vec![0, 8, 9, 10]));
        assert_eq!(Ranks::parse("0-3,63", 64).unwrap().list(), "0-3,63");
    }

    #[test]
    fn ranks_that_cannot_be_are_refused_in_one_sentence() {
        for (list, world, part) in [
            ("64", 64, "the ranks of --world 64 are 0 to 63"),
            ("0-4000000000", 64, "are 0 to 63"),
            ("0-4000000000", u32::MAX, "more ranks than"),
            ("0,3,0", 4, "rank 0 twice"),
            ("0-3,2", 4, "rank 2 twice"),
            ("", 4, "not a list of ranks"),
            ("0,", 4, "not a list of ranks"),
            ("3-1", 4, "not a list of ranks"),
            ("-1", 4, "not a list of ranks"),
            ("x", 4, "not a list of ranks"),
            ("0", 0, "--world 0 has no ranks"),
        ] {
            let sentence = Ranks::parse(list, world).unwrap_err().to_string();
            assert!(sentence.contains(part) && sentence.lines().count() == 1, "{list}: {sentence}");
        }
    }

    fn placed(list: &str, world: u32, machine: &str) -> Result<Vec<(u32, usize, u32, usize)>, RanksError> {
        let placed = Ranks::parse(list, world)?.place(&MachineSpec::parse(machine).unwrap())?;
        Ok(placed.into_iter().map(|it| (it.rank, it.local, it.node, it.gpu)).collect())
    }

    #[test]
    fn two_ranks_never_share_a_gpu() {
        assert_eq!(placed("0,63", 64, "8xB200"), Ok(vec![(0, 0, 0, 0), (63, 7, 7, 7)]));
        let three = placed("0,1,8,16", 64, "8xB200");
        assert_eq!(three, Ok(vec![(0, 0, 0, 0), (1, 1, 0, 1), (8, 0, 1, 2), (16, 0, 2, 3)]));
        let many = placed("0-8", 64, "8xB200").unwrap_err().to_string();
        assert_eq!(
            many,
            "--ranks names 9 ranks, and the machine 8xB200 has 8 GPUs: each rank needs one of its own"
        );
        assert!(placed("0,1", 8, "T4+H200").is_ok());
        assert!(
            placed("0,2", 8, "T4+H200").unwrap_err().to_string().contains("both are GPU 0 of their nodes")
        );
    }

    #[test]
    fn a_node_that_is_not_full_has_fewer_ranks() {
        let ranks = Ranks::parse("0,9", 10).unwrap();
        let placed = ranks.place(&MachineSpec::parse("8xT4").unwrap()).unwrap();
        assert_eq!(placed.iter().map(|it| it.on_node).collect::<Vec<_>>(), [8, 2]);
    }

    #[test]
    fn commands_that_start_ranks_are_refused() {
        let ranks = Ranks::parse("0", 2).unwrap();
        let check = |line: &str| {
            let words: Vec<_> = line.split(' ').map(Into::into).collect();
            ranks.check_command(&words).map_err(|error| error.to_string())
        };
        assert_eq!(check("python3 train.py"), Ok(()));
        for line in ["/usr/bin/torchrun train.py", "python3 -m torch.distributed.run train.py"] {
            assert!(check(line).unwrap_err().contains("give the script without torch"), "{line}");
        }
    }
}
