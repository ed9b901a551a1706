//! Files in the forms that Nsight Compute's documentation shows, and damaged ones.

use super::*;

/// As `ncu --csv --page raw` writes it, with what ncu prints around it.
const RAW: &str = r#"==PROF== Connected to process 4711 (/usr/bin/python3)
step 1, loss 2.5
==PROF== Profiling "vecAdd" - 0: 0%....50%....100% - 9 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes.sum.per_second","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","lts__throughput.avg.pct_of_peak_sustained_elapsed","sm__cycles_active.avg","sm__cycles_elapsed.max","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","Gbyte/second","%","usecond","%","cycle","cycle","%"
"0","4711","python3","127.0.0.1","vecAdd(const float *, float *, int)","1","7","(256, 1, 1)","(1024, 1, 1)","0","8.0","1.5","80","10","40","900","1,000","50"
"1","4711","python3","127.0.0.1","vecAdd(const float *, float *, int)","1","7","(256, 1, 1)","(4096, 1, 1)","0","8.0","n/a","20","30","(!) n/a","1,001","1,000","90"
"2","4711","python3","127.0.0.1","void at::native::fill<(int)4, float>(int, T2)","1","7","(64, 1, 1)","(1, 1, 1)","0","8.0","0.25","1.25","2.5","3.5","8","1,000","6.25"
==PROF== Disconnected from process 4711
"#;

/// As `ncu --csv` writes it.
const DETAILS: &str = r#""ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"
"0","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","GPU Speed Of Light Throughput","DRAM Frequency","hz","1,215,000,000.00","","","","",""
"0","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","GPU Speed Of Light Throughput","Elapsed Cycles","cycle","4,000","","","","",""
"0","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","GPU Speed Of Light Throughput","Memory Throughput","%","45.70","","","","",""
"0","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","GPU Speed Of Light Throughput","Duration","us","3.25","","","","",""
"0","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","GPU Speed Of Light Throughput","SM Active Cycles","cycle","1,000.00","","","","",""
"0","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","SpeedOfLight","","","","SOLBottleneck","OPT","This kernel, ""small"", is
on two lines","",""
"0","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","Memory Workload Analysis","Memory Throughput","Mbyte/s","500.00","","","","",""
"1","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","GPU Speed Of Light Throughput","Memory Throughput","%","25.70","","","","",""
"1","1","p","h","k(float *)","1","7","(256, 1, 1)","(4, 1, 1)","0","8.0","GPU Speed Of Light Throughput","Duration","us","3.25","","","","",""
"#;

fn metrics(text: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let read = read(text, "a.csv").unwrap_or_else(|error| panic!("{error}"));
    read.kernels.into_iter().map(|kernel| (kernel.name, kernel.metrics)).collect()
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-9 * expected.abs().max(1.0)
}

#[test]
fn launches_of_the_raw_page_are_averaged_by_time() {
    let read = read(RAW, "a.csv").unwrap();
    assert_eq!((read.tool.as_str(), read.file.as_str()), ("Nsight Compute", "a.csv"));
    let launches: Vec<_> =
        read.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.launches)).collect();
    let (add, fill) =
        ("vecAdd(const float *, float *, int)", "void at::native::fill<(int)4, float>(int, T2)");
    assert_eq!(launches, [(add, 2), (fill, 1)]);
    let all = metrics(RAW);
    for (key, value) in [
        ("duration_ns", 20_000.0),
        // (10 * 80 + 30 * 20) / 40.
        ("dram_throughput", 35.0),
        // Of the one launch that has them.
        ("l2_throughput", 40.0),
        ("dram_bytes_per_second", 1.5e9),
        // (10 * 90 + 30 * 100) / 40.
        ("sm_active", 97.5),
        ("occupancy", 80.0),
    ] {
        assert!(close(all[add][key], value), "{key}: {}", all[add][key]);
    }
    assert!(close(all[fill]["sm_active"], 0.8) && close(all[fill]["dram_throughput"], 1.25));
}

#[test]
fn the_details_page_says_the_same_in_rows() {
    let all = metrics(DETAILS);
    let k = &all["k(float *)"];
    for (key, value) in [
        ("duration_ns", 3250.0),
        ("memory_throughput", 35.7),
        ("dram_bytes_per_second", 5e8),
        ("sm_active", 25.0),
    ] {
        assert!(close(k[key], value), "{key}: {}", k[key]);
    }
    assert_eq!(k.len(), 4, "{k:?}");
}

#[test]
fn a_summary_by_kernel_counts_its_invocations() {
    let text = r#""Process ID","Kernel Name","Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"
"1","a","1,000","GPU Speed Of Light Throughput","DRAM Throughput","%","5","15","10"
"1","a","1,000","GPU Speed Of Light Throughput","Duration","us","1","3","2.5"
"2","a","3000","GPU Speed Of Light Throughput","DRAM Throughput","%","5","55","30"
"2","a","3000","GPU Speed Of Light Throughput","Duration","us","1","3","2.5"
"#;
    let read = read(text, "a").unwrap();
    assert_eq!((read.kernels.len(), read.kernels[0].launches), (1, 4000));
    assert!(close(read.kernels[0].metrics["dram_throughput"], 25.0), "{:?}", read.kernels);
}

#[test]
fn the_same_file_in_other_clothes_says_the_same() {
    let expected = metrics(RAW);
    assert_eq!(metrics(&format!("\u{feff}{RAW}")), expected, "byte order mark");
    assert_eq!(metrics(&RAW.replace('\n', "\r\n")), expected, "CRLF");
    // Columns that a report has beside those of the documentation.
    let wider =
        RAW.replace("\"CC\",", "\"CC\",\"thread Domain:Push/Pop\",").replace("\"8.0\",", "\"8.0\",\"x,y\",");
    let wider = wider.replace("\"\",\"\",\"Gbyte", "\"\",\"\",\"\",\"Gbyte");
    assert_eq!(metrics(&wider), expected, "another column");
    // A locale with decimal commas.
    let swap = |text: &str| -> String {
        let swap = |c| match c {
            '.' => ',',
            ',' => '.',
            c => c,
        };
        text.chars().map(swap).collect()
    };
    let mut local = String::new();
    for line in RAW.lines() {
        let cells: Vec<String> =
            line.split("\",\"").enumerate().map(|(at, c)| if at > 10 { swap(c) } else { c.into() }).collect();
        local.push_str(&if line.starts_with("\"ID") { line.to_owned() } else { cells.join("\",\"") });
        local.push('\n');
    }
    assert!(local.contains("\"1,5\"") && local.contains("\"1.001\""), "{local}");
    assert_eq!(metrics(&local), expected, "decimal commas");
    // As spreadsheets save it there.
    assert_eq!(metrics(&local.replace("\",\"", "\";\"")), expected, "semicolons");
}

#[test]
fn what_is_wrong_with_a_file_is_one_sentence() {
    let header = RAW.lines().nth(3).unwrap();
    let units = RAW.lines().nth(4).unwrap();
    let row = RAW.lines().nth(5).unwrap();
    for (text, part) in [
        (String::new(), "empty"),
        ("\u{feff}\r\n \n".to_owned(), "empty"),
        ("program,batch,peak_mib\na,1,2\n".to_owned(), "no table of Nsight Compute"),
        ("==ERROR== The user does not have permission\n".to_owned(), "no table of Nsight Compute"),
        (format!("{header}\n"), "no kernel was profiled"),
        (format!("{header}\n{units}\n==WARNING== No kernels were profiled.\n"), "no kernel was profiled"),
        (format!("==PROF==\n{header}\n{row}\n"), "no row of units is below the header in line 2"),
        (format!("{header}\n{units}\n{row}\n").replace("\"80\"", "\"high\""), "line 3: gpu__dram_throughput"),
        (format!("{header}\n{units}\n{row}\n").replace("\"80\"", "\"-80\""), "not a number"),
        (
            format!("{header}\n{units}\n{row}\n").replace("\"80\"", "\"80,25\""),
            "decimal point and some a decimal comma",
        ),
        (
            format!("{header}\n{units}\n{row}\n").replace("usecond", "fortnight"),
            "\"fortnight\", which is not known",
        ),
        (DETAILS.replace("\"us\"", "\"furlong\""), "line 5: the unit of Duration is \"furlong\""),
        (
            "ID,Process ID,Kernel Name,gpu__time_duration.sum,x\n,,,ns,\n0,1,k,5,9\n".to_owned(),
            "none of the metrics that are imported",
        ),
    ] {
        let error = read(&text, "a.csv").map(|read| panic!("{part}: {read:?}")).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_cut_off_file_gives_what_is_whole_or_a_sentence() {
    for text in [RAW, DETAILS] {
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            if let Err(error) = read(&text[..at], "a.csv") {
                assert_eq!(error.to_string().lines().count(), 1, "{error}");
            }
        }
    }
}

#[test]
fn many_launches_of_one_kernel_take_one_entry() {
    let mut text: String = RAW.lines().take(5).flat_map(|line| [line, "\n"]).collect();
    let row = RAW.lines().nth(5).unwrap();
    for n in 0..20_000 {
        text.push_str(&row.replacen("\"0\"", &format!("\"{n}\""), 1));
        text.push('\n');
    }
    let read = read(&text, "a.csv").unwrap();
    assert_eq!((read.kernels.len(), read.kernels[0].launches), (1, 20_000));
    assert!(close(read.kernels[0].metrics["dram_throughput"], 80.0));
}
