//! One test for each promise of the README.
#![allow(clippy::unwrap_used)]

mod office;

use office::*;
use scheduler::domain::ExecutionStatus;

#[tokio::test]
async fn smoke() {
    let office = with_job(every("job", HOUR)).await;
    office.advance(HOUR);
    assert_eq!(office.scan().await, [id("job", HOUR)]);
    office.work_all("w").await;
    assert_eq!(
        office.status(&id("job", HOUR)).await,
        ExecutionStatus::Completed
    );
    office.invariants("job").await.unwrap();
    let office = with_job(once("job", 0)).await;
    office.work_all("w").await;
    assert_eq!(
        office.status(&id("job", 0)).await,
        ExecutionStatus::Completed
    );
    office.invariants("job").await.unwrap();
    let office = open().await;
    office.diary.lock().unwrap().fails = 5;
    office.scheduler.create_job(once("job", 0)).await.unwrap();
    office.live(6).await;
    assert_eq!(office.status(&id("job", 0)).await, ExecutionStatus::Failed);
    office.invariants("job").await.unwrap();
    assert_eq!(office.starts().len(), 3);
}
