//! Jobs of Helios as SenseTime published them: `cluster_log.csv` of each of its clusters.

use std::collections::BTreeMap;

use super::columns::HELIOS;
use super::philly::since;
use super::table::{Table, seconds};
use super::{LeftOut, ReadError, Trace, calendar};
use crate::replay::TraceJob;
use crate::units::Permille;
use radrm_base::UserId;

/// Reads the table. Equal names of a user are runs of one program, where the table has names.
pub(super) fn read(text: &str) -> Result<Trace, ReadError> {
    let table = Table::read(text)?;
    table.require(&HELIOS)?;
    let mut left_out = LeftOut::default();
    let mut users: BTreeMap<&str, UserId> = BTreeMap::new();
    let mut found = Vec::new();
    for row in &table.rows {
        let gpus = table.number(row, "gpu_num")?.unwrap_or(0.0) as u16;
        let ran =
            table.text(row, "duration")?.parse::<f64>().ok().filter(|ran| ran.is_finite() && *ran > 0.0);
        match (calendar::seconds(table.text(row, "submit_time")?), ran, gpus) {
            (None, ..) => left_out.count("have no time of submission"),
            (_, None, _) => left_out.count("have no run time, or one of 0"),
            (.., 0) => left_out.count("had no GPU"),
            (Some(submitted), Some(ran), gpus) => {
                let next = UserId(u32::try_from(users.len()).unwrap_or(u32::MAX));
                let user = *users.entry(table.text(row, "user")?).or_insert(next);
                let named = if table.has("jobname") { table.text(row, "jobname")? } else { "" };
                let name = match named {
                    "" => table.text(row, "job_id")?.to_owned(),
                    name => format!("{name} of user {}", user.0),
                };
                found.push((submitted, seconds(ran), gpus, user, name));
            }
        }
    }
    let first = found.iter().map(|(submitted, ..)| *submitted).min().unwrap_or(0);
    let jobs = found.into_iter().map(|(submitted, ran, gpus, user, name)| TraceJob {
        gpus,
        user,
        share: Some(Permille::WHOLE),
        ..TraceJob::new(name, since(submitted, first), ran)
    });
    Ok(Trace { jobs: jobs.collect(), left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n";

    #[test]
    fn jobs_are_read_and_those_left_out_are_counted() {
        let rows = "7,uA,vc1,8,64,1,COMPLETED,2020-04-01 00:10:00,2020-04-01 00:12:00,2020-04-01 01:12:00,3600,120\n\
            8,uB,vc1,1,8,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:01,2020-04-01 00:00:31,30,1\n\
            9,uA,vc1,0,8,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:01,2020-04-01 00:00:31,30,1\n\
            10,uA,vc1,1,8,1,CANCELLED,2020-04-01 00:00:00,None,None,0,30\n\
            11,uA,vc1,1,8,1,COMPLETED,None,None,None,30,1\n";
        let Trace { jobs, left_out } = read(&format!("{HEAD}{rows}")).unwrap();
        let row = |job: &TraceJob| (job.name.clone(), job.arrival.0, job.duration.0, job.gpus, job.user.0);
        let expected = [("7".to_owned(), 600_000, 3_600_000, 8, 0), ("8".to_owned(), 0, 30_000, 1, 1)];
        assert_eq!(jobs.iter().map(row).collect::<Vec<_>>(), expected);
        let why = "1 had no GPU, 1 have no run time, or one of 0, 1 have no time of submission";
        assert_eq!(left_out.to_string(), why);
        assert_eq!(
            read("gpu_num,submit_time\n1,x\n").unwrap_err().to_string(),
            "the columns job_id, user and duration are missing"
        );
    }

    #[test]
    fn equal_names_of_a_user_are_one_program() {
        let head = HEAD.replace("user,vc", "user,vc,jobname");
        let row = |user: &str| format!("1,{user},v,train,1,1,1,COMPLETED,2020-04-01 00:00:00,,,9,0\n");
        let jobs = read(&format!("{head}{}{}{}", row("a"), row("b"), row("a"))).unwrap().jobs;
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["train of user 0", "train of user 1", "train of user 0"]);
    }
}
