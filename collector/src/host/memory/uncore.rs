//! Memory traffic of a whole node, by the counters of its memory controllers.

use std::fmt;
use std::io;
use std::path::Path;

use super::error::MemoryError;
use super::event::{EventCode, Target};
use super::unit::{self, Unit};

/// Most counters, each with a descriptor: two sockets with a controller for each of twelve channels have 48.
const MAX_COUNTERS: usize = 256;

/// Reads a counter.
pub(super) type Reader = Box<dyn Fn() -> Option<u64> + Send>;

/// Opens a counter.
pub(super) type Opener<'a> = &'a dyn Fn(EventCode, Target) -> io::Result<Reader>;

/// Events of one kind of unit that make up all traffic of its controller.
struct Source {
    units: &'static str,
    /// Names of the kernel's, and the bytes of one count where the kernel gives no scale.
    events: [(&'static str, Option<f64>); 2],
}

/// Sources by the names that the kernel's drivers give them, the first that is there decides: of Intel's servers, its clients,
/// those of its controllers that always count, AMD's and NVIDIA's Grace (beats of 32 bytes, and bytes).
const SOURCES: [Source; 5] = [
    Source { units: "uncore_imc", events: [("cas_count_read", None), ("cas_count_write", None)] },
    Source { units: "uncore_imc", events: [("data_reads", None), ("data_writes", None)] },
    Source { units: "uncore_imc_free_running", events: [("data_read", None), ("data_write", None)] },
    Source { units: "amd_umc", events: [("umc_cas_cmd.rd", Some(64.0)), ("umc_cas_cmd.wr", Some(64.0))] },
    Source {
        units: "nvidia_scf_pmu",
        events: [("cmem_rd_data", Some(32.0)), ("cmem_wr_total_bytes", Some(1.0))],
    },
];

/// Counters of all memory controllers of a node, each with the bytes of one count.
pub(super) struct Uncore {
    counters: Vec<(Reader, f64)>,
}

impl fmt::Debug for Uncore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Uncore({} counters)", self.counters.len())
    }
}

impl Uncore {
    /// Opens the counters of the units that `devices` lists.
    ///
    /// # Errors
    /// No unit is known, one of them cannot be counted in bytes, or the kernel does not allow it: a part of the controllers
    /// would look like less traffic.
    pub(super) fn open(devices: &Path, open: Opener<'_>) -> Result<Self, MemoryError> {
        let mut problem = None;
        for source in &SOURCES {
            match source.events(devices) {
                Ok(events) if events.is_empty() => {}
                Ok(events) => return Self::of(&events, open),
                Err(error) => {
                    problem.get_or_insert(error);
                }
            }
        }
        Err(problem.unwrap_or(MemoryError::NoController))
    }

    fn of(events: &[(EventCode, u32, f64)], open: Opener<'_>) -> Result<Self, MemoryError> {
        if events.len() > MAX_COUNTERS {
            return Err(MemoryError::ManyCounters(MAX_COUNTERS));
        }
        let counter = |&(code, processor, bytes): &(EventCode, u32, f64)| -> Result<_, MemoryError> {
            let reader = open(code, Target::Processor(processor)).map_err(MemoryError::Refused)?;
            Ok((reader, bytes))
        };
        Ok(Self { counters: events.iter().map(counter).collect::<Result<_, _>>()? })
    }

    /// Bytes that the node has moved since the counters were opened. `None` if one of them does not say.
    pub(super) fn bytes(&self) -> Option<u64> {
        let mut sum = 0.0;
        for (read, bytes) in &self.counters {
            sum += read()? as f64 * bytes;
        }
        // A conversion from a float saturates. It is exact to a part in 2^53, which is no traffic.
        Some(sum as u64)
    }
}

impl Source {
    /// Its events on all processors that read them; none if the system has no such unit.
    fn events(&self, devices: &Path) -> Result<Vec<(EventCode, u32, f64)>, MemoryError> {
        let mut found = Vec::new();
        for name in unit::names(devices, self.units) {
            let unit = Unit::read(&devices.join(&name));
            let unit = unit.ok_or_else(|| MemoryError::NoUnit(name.clone()))?;
            for (event, bytes) in self.events {
                let events = unit.events(event, bytes);
                let events = events.ok_or_else(|| MemoryError::NoEvent { unit: name.clone(), event })?;
                for (code, weight) in events {
                    found.extend(unit.processors.iter().map(|processor| (code, *processor, weight)));
                }
            }
            if found.len() > MAX_COUNTERS {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;

    use super::*;

    /// Unit of a fixture: its files by their paths.
    fn put(root: &Path, unit: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(unit).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    const INTEL: [(&str, &str); 10] = [
        ("cpumask", "0,28\n"),
        ("format/event", "config:0-7\n"),
        ("format/umask", "config:8-15\n"),
        ("events/cas_count_read", "event=0x04,umask=0x03\n"),
        ("events/cas_count_read.scale", "6.103515625e-5\n"),
        ("events/cas_count_read.unit", "MiB\n"),
        ("events/cas_count_write", "event=0x04,umask=0x0c\n"),
        ("events/cas_count_write.scale", "6.103515625e-5\n"),
        ("events/cas_count_write.unit", "MiB\n"),
        ("events/clockticks", "event=0xff,umask=0x00\n"),
    ];

    /// Counters that count `each` so far.
    fn counting(each: Option<u64>) -> impl Fn(EventCode, Target) -> io::Result<Reader> {
        move |_, _| Ok(Box::new(move || each) as Reader)
    }

    #[test]
    fn traffic_of_intels_controllers_is_the_sum_of_reads_and_writes_of_all_sockets() {
        let root = tempfile::tempdir().unwrap();
        for (unit, kind) in [("uncore_imc_0", "13\n"), ("uncore_imc_1", "14\n")] {
            put(root.path(), unit, &INTEL);
            put(root.path(), unit, &[("type", kind)]);
        }
        // A controller that always counts has the same traffic once more.
        put(root.path(), "uncore_imc_free_running_0", &[("type", "15"), ("cpumask", "0")]);
        let opened = RefCell::new(Vec::new());
        let open = |code: EventCode, target: Target| {
            opened.borrow_mut().push((code.kind, code.config[0], target));
            Ok(Box::new(|| Some(1_000_000_u64)) as Reader)
        };
        let uncore = Uncore::open(root.path(), &open).unwrap();
        let (read, write) = (0x304, 0xc04);
        let of = |kind, config| [0, 28].map(|number| (kind, config, Target::Processor(number)));
        let expected = [of(13, read), of(13, write), of(14, read), of(14, write)].concat();
        assert_eq!(opened.into_inner(), expected);
        assert_eq!(uncore.bytes(), Some(8 * 64_000_000), "lines of 64 bytes");
    }

    #[test]
    fn a_sum_of_channels_is_taken_where_the_kernel_has_the_parts_only() {
        let root = tempfile::tempdir().unwrap();
        let mut files = vec![("type", "9"), ("cpumask", "0"), ("format/event", "config:0-7")];
        for event in
            ["cas_count_read_sch0", "cas_count_read_sch1", "cas_count_write_sch0", "cas_count_write_sch1"]
        {
            files.push((event, "event=0x05"));
        }
        let names: Vec<(String, &str)> = files
            .iter()
            .flat_map(|(name, text)| match name.starts_with("cas") {
                true => vec![
                    (format!("events/{name}"), *text),
                    (format!("events/{name}.scale"), "1"),
                    (format!("events/{name}.unit"), "Bytes"),
                ],
                false => vec![((*name).to_owned(), *text)],
            })
            .collect();
        let files: Vec<(&str, &str)> = names.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        put(root.path(), "uncore_imc_0", &files);
        assert_eq!(Uncore::open(root.path(), &counting(Some(7))).unwrap().bytes(), Some(28));
    }

    #[test]
    fn counts_without_a_scale_have_their_bytes_by_the_units_name() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("type", "30"),
            ("cpumask", "0"),
            ("format/event", "config:0-7"),
            ("events/cmem_rd_data", "event=0xf0"),
            ("events/cmem_wr_total_bytes", "event=0xf3"),
        ];
        put(root.path(), "nvidia_scf_pmu_0", &files);
        assert_eq!(Uncore::open(root.path(), &counting(Some(100))).unwrap().bytes(), Some(3_300));
    }

    #[test]
    fn amds_controllers_count_where_the_kernel_names_their_events() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("type", "40"),
            ("cpumask", "0"),
            ("format/event", "config:0-7"),
            ("format/rdwrmask", "config:8-9"),
        ];
        put(root.path(), "amd_umc_0", &files);
        let why = Uncore::open(root.path(), &counting(Some(1))).unwrap_err().to_string();
        assert!(why.contains("amd_umc_0") && why.contains("umc_cas_cmd.rd"), "{why}");
        let events = [
            ("events/umc_cas_cmd.rd", "event=0x0a,rdwrmask=0x1"),
            ("events/umc_cas_cmd.wr", "event=0x0a,rdwrmask=0x2"),
        ];
        put(root.path(), "amd_umc_0", &events);
        assert_eq!(Uncore::open(root.path(), &counting(Some(1))).unwrap().bytes(), Some(128));
    }

    #[test]
    fn a_part_of_the_controllers_is_no_traffic() {
        let root = tempfile::tempdir().unwrap();
        let none = Uncore::open(root.path(), &counting(Some(1))).unwrap_err();
        assert!(matches!(none, MemoryError::NoController), "{none}");
        for unit in ["uncore_imc_0", "uncore_imc_1"] {
            put(root.path(), unit, &INTEL);
            put(root.path(), unit, &[("type", "13")]);
        }
        put(root.path(), "uncore_imc_1", &[("events/cas_count_write.scale", "nan")]);
        let broken = Uncore::open(root.path(), &counting(Some(1))).unwrap_err().to_string();
        assert!(broken.contains("uncore_imc_1") && broken.contains("cas_count_write"), "{broken}");
        put(root.path(), "uncore_imc_1", &[("events/cas_count_write.scale", "6.1e-5"), ("type", "")]);
        let broken = Uncore::open(root.path(), &counting(Some(1))).unwrap_err().to_string();
        assert!(broken.contains("uncore_imc_1"), "{broken}");
    }

    #[test]
    fn a_counter_that_does_not_say_makes_the_sum_unknown_and_none_is_opened_without_end() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "uncore_imc_0", &INTEL);
        put(root.path(), "uncore_imc_0", &[("type", "13")]);
        assert_eq!(Uncore::open(root.path(), &counting(None)).unwrap().bytes(), None);
        let huge = Uncore::open(root.path(), &counting(Some(u64::MAX))).unwrap();
        assert_eq!(huge.bytes(), Some(u64::MAX), "saturates");
        let denied = |_: EventCode, _: Target| -> io::Result<Reader> {
            Err(io::Error::from_raw_os_error(libc::EACCES))
        };
        let why = Uncore::open(root.path(), &denied).unwrap_err().to_string();
        assert!(why.contains("kernel.perf_event_paranoid"), "{why}");
        for unit in 1..200 {
            let name = format!("uncore_imc_{unit}");
            put(root.path(), &name, &INTEL);
            put(root.path(), &name, &[("type", "13")]);
        }
        let never = |_: EventCode, _: Target| -> io::Result<Reader> { panic!("no counter is to be opened") };
        let many = Uncore::open(root.path(), &never).unwrap_err();
        assert!(matches!(many, MemoryError::ManyCounters(_)), "{many}");
    }
}
