//! Pages leave, on the fake kernel.

extern crate std;

use crate::address_space::place::Place;
use crate::rig::Rig;
use zfolio_fake_kernel::program;

#[test]
fn a_pinned_page_stays_and_those_beside_it_leave() {
    for mut rig in [Rig::of_regions(2048, 64), Rig::of_process(2048, 64)] {
        rig.write_all(0..32);
        program::pin(rig.address(20), true);
        assert_eq!(rig.move_out(0..32), Ok(31));
        for page in 0..32 {
            let left = matches!(rig.place(page), Place::Standby(_));
            assert_eq!(left, page != 20, "{page}");
        }
        rig.validate();
        rig.store_all();
        rig.validate();
        rig.read_all();
        rig.validate();
    }
}
