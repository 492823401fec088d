// An object graph built, and then a tenth of it worked on, one step of 100000
// anywhere; what is looked up makes garbage. Takes the numbers of objects and of steps;
// prints a JSON line a phase.
public final class Objects {
  static final class Customer {
    final int key;
    final String name;
    final int[] orders;
    final String street;
    double balance;

    Customer(int key) {
      this.key = key;
      name = "customer " + key;
      orders = new int[] {key * 3, key * 3 + 1, key * 3 + 2, key * 3 + 3};
      street = "street " + key % 1000 + ", city " + key % 89;
      balance = key * 0.5;
    }
  }

  static void phase(String name, long begin) {
    double seconds = (System.nanoTime() - begin) / 1e9;
    System.out.println("{\"phase\":\"" + name + "\",\"value\":" + seconds + ",\"unit\":\"s\"}");
  }

  public static void main(String[] args) {
    int count = Integer.parseInt(args[0]);
    long steps = Long.parseLong(args[1]);
    long begin = System.nanoTime();
    Customer[] customers = new Customer[count];
    for (int key = 0; key < count; key++) {
      customers[key] = new Customer(key);
    }
    phase("build", begin);
    begin = System.nanoTime();
    int hot = Math.max(1, count / 10);
    int state = 1;
    long sum = 0;
    for (long step = 0; step < steps; step++) {
      state = state * 1664525 + 1013904223;
      Customer customer = customers[(state >>> 8) % (step % 100000 == 0 ? count : hot)];
      String label = customer.name + customer.orders[(int) (step & 3)];
      customer.balance += 1;
      sum += label.length() + customer.street.length();
    }
    phase("part", begin);
    System.out.println("{\"check\":\"" + sum + " " + (long) customers[0].balance + "\"}");
  }
}
